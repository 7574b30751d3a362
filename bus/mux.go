package bus

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

// A Frame is one message that came back for a Ticket.
type Frame struct {
	Kind         wire.Frame  // Result for a plain reply
	Header       wire.Header // as wire.Inbound leaves it, and the two of NATS services, which wire.DecodeFault reads
	Data         []byte      // yours to keep
	NoResponders bool        // nobody listens on the subject: nothing ran

	// Refused says that the server did not let us publish the request: nothing ran, and nothing else will come. Such a
	// frame may come beside another, on another goroutine.
	Refused *fault.Fault
}

// A Sink takes the frames of one request, one at a time, on the connection's reader goroutine: it must not block, for
// every other request of the connection waits meanwhile. It may close its ticket and open others.
type Sink interface{ Receive(Frame) }

// A Ticket is one open request: the reply subject under which its frames come back. It is a small value; copies are
// the same ticket. The zero Ticket asks for no reply.
type Ticket struct {
	c     *Conn
	n     uint64
	reply string
}

// mux finds the Sink of a reply by the number at the end of its subject. One subscription feeds it.
type mux struct {
	refused error // why the server would not have it; nil where all is well. Set before Connect returns

	last    atomic.Uint64
	shards  [32]shard
	orphans atomic.Uint64
	strays  atomic.Uint64
}

type shard struct {
	mu   sync.Mutex
	open map[uint64]request
	_    [48]byte // a cache line each
}

type request struct {
	tool    string
	sink    Sink
	subject string // where it was sent
}

func (m *mux) init() {
	for i := range m.shards {
		m.shards[i].open = map[uint64]request{}
	}
}

func (m *mux) shard(n uint64) *shard { return &m.shards[n%uint64(len(m.shards))] }

func (m *mux) find(n uint64) (request, bool) {
	s := m.shard(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.open[n]
	return r, ok
}

// Open makes a ticket for a request to tool, which must be legal as tool.CheckName says. Nothing is subscribed. Close
// the ticket when no more frames are wanted: until then s is held.
func (c *Conn) Open(tool string, s Sink) Ticket { return c.open(tool, "", s) }

// Ask is Open and Send in one. Where the message was not sent the ticket is closed. The first frame may come before Ask
// returns.
func (c *Conn) Ask(subject, tool string, s Sink, h wire.Header, data []byte) (Ticket, *fault.Fault) {
	t := c.open(tool, subject, s)
	if f := c.send(t, subject, h, data); f != nil {
		t.Close()
		return Ticket{}, f
	}
	return t, nil
}

// open opens a ticket for a request that goes to subject, where that is known.
func (c *Conn) open(tool, subject string, s Sink) Ticket {
	n := c.mux.last.Add(1)
	var digits [13]byte // of the largest uint64 in base 36
	t := Ticket{c, n, c.subjects.Reply(tool, c.id, string(strconv.AppendUint(digits[:0], n, 36)))}
	sh := c.mux.shard(n)
	sh.mu.Lock()
	sh.open[n] = request{tool: tool, sink: s, subject: subject}
	sh.mu.Unlock()
	return t
}

// Close ends the ticket. Frames that come later are dropped and counted as orphans. Closing twice does nothing.
//
// A Sink that closes its own ticket within Receive gets no frame after that one. A Close from anywhere else may meet a
// frame on its way: at most one call of Receive can run, or begin, after such a Close has returned, so the Sink must
// still be able to take it.
func (t Ticket) Close() {
	if t.c == nil {
		return
	}
	s := t.c.mux.shard(t.n)
	s.mu.Lock()
	delete(s.open, t.n)
	s.mu.Unlock()
}

// sentTo notes where the ticket's first message goes, for when the server refuses it.
func (t Ticket) sentTo(subject string) {
	if t.c == nil {
		return
	}
	s := t.c.mux.shard(t.n)
	s.mu.Lock()
	if r, ok := s.open[t.n]; ok && r.subject == "" { // what follows a request, a cancel, is not the request
		r.subject = subject
		s.open[t.n] = r
	}
	s.mu.Unlock()
}

// Reply is the subject to answer to; "" of the zero Ticket.
func (t Ticket) Reply() string { return t.reply }

// dispatch hands one reply to its Sink.
func (c *Conn) dispatch(m *nats.Msg) {
	tool, _, text, ok := c.subjects.ParseReply(m.Subject)
	n, err := strconv.ParseUint(text, 36, 64)
	if !ok || err != nil {
		c.mux.orphans.Add(1)
		return
	}
	r, ok := c.mux.find(n)
	switch {
	case !ok:
		c.mux.orphans.Add(1)
	case r.tool != tool:
		// Permissions let a worker publish to the replies of its own tools only, so this is how it would forge one.
		if k := c.mux.strays.Add(1); k&(k-1) == 0 { // the first, the second, the fourth ...
			c.log.Warn("dropped an answer that came as another tool than the one that was asked",
				"asked", r.tool, "came as", tool, "so far", k)
		}
	default:
		r.sink.Receive(frameOf(m))
	}
}

func frameOf(m *nats.Msg) Frame {
	if len(m.Header) == 0 {
		return Frame{Kind: wire.Result, Data: m.Data}
	}
	h := wire.Header(m.Header)
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return Frame{Kind: wire.Result, NoResponders: true}
	}
	kind := wire.FrameOf(h)
	if kind == "" {
		kind = wire.Result
	}
	return Frame{Kind: kind, Header: inbound(h), Data: m.Data}
}

// inbound is wire.Inbound, and the two headers of NATS services.
func inbound(h wire.Header) wire.Header {
	in := wire.Inbound(h)
	if len(in) == len(h) {
		return h
	}
	for _, name := range [...]string{wire.HeaderServiceError, wire.HeaderServiceErrorCode} {
		if v := wire.Get(h, name); v != "" {
			in[name] = []string{v}
		}
	}
	return in
}

// Request sends one message and waits for the first frame that comes back, or the end of ctx. The tool names the reply
// subject; for what is no tool, any name will do. Where nobody listens, the frame says NoResponders and the fault is
// Unavailable: nothing ran. At the end of ctx the fault is Timeout or Cancelled, and what happened is not known.
func (c *Conn) Request(ctx context.Context, subject, tool string, h wire.Header, data []byte) (Frame, *fault.Fault) {
	first := make(firstFrame, 1)
	t, f := c.Ask(subject, tool, first, h, data)
	if f != nil {
		return Frame{}, f
	}
	defer t.Close()
	select {
	case frame := <-first:
		if frame.Refused != nil {
			return frame, frame.Refused
		}
		if frame.NoResponders {
			return frame, fault.New(fault.Unavailable, "nobody listens on %s", subject)
		}
		return frame, nil
	case <-ctx.Done():
		f := Fault(ctx.Err())
		f.Message = "no answer from " + subject + " in time"
		if f.Kind == fault.Cancelled {
			f.Message = "cancelled while waiting for an answer from " + subject
		}
		if err := c.PermissionError(subject); err != nil {
			f.Detail = err.Error()
		}
		return Frame{}, f
	case <-c.closed:
		return Frame{}, fault.New(fault.WorkerLost, "the connection to NATS was closed while waiting for an answer from %s", subject)
	}
}

// firstFrame keeps the first frame and drops the others.
type firstFrame chan Frame

func (ch firstFrame) Receive(f Frame) {
	select {
	case ch <- f:
	default:
	}
}

// Orphans counts frames that answered no open ticket since Connect: late ones, mostly.
func (c *Conn) Orphans() uint64 { return c.mux.orphans.Load() }

// Strays counts frames that came as another tool than the one that was asked. They are dropped. An honest worker makes
// none.
func (c *Conn) Strays() uint64 { return c.mux.strays.Load() }
