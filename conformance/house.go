package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/wire"
)

const (
	concurrency = 4                // what workers are told
	patience    = 5 * time.Second  // with one frame
	readyTime   = 30 * time.Second // for a worker to start, on a busy machine
	stopTime    = 15 * time.Second // for a worker to end after SIGTERM
	goneTime    = 3 * time.Second  // for the server to notice that nobody listens
	quiet       = 150 * time.Millisecond
	askAgain    = 20 * time.Millisecond
	maxBeats    = 10_000
	barrierTool = "conf_echo"
	prefix      = "tb" // of the subjects of cases that name no other
)

// A house is one worker under test, and those who talk to it.
type house struct {
	cfg      *Config
	conn     *bus.Conn
	nc       *nats.Conn
	subjects wire.Subjects
	link     *link // nil where the server is not ours
	process  *process
	worker   string // its id; empty for plain workers
	root     string // of our inboxes

	mu      sync.Mutex
	inboxes map[string]*inbox
	beats   []beat
	news    chan struct{} // one heartbeat came
	foreign []string      // subjects to which a worker may not publish, and did

	guests []*guest
}

// A beat is a heartbeat as it came.
type beat struct {
	wire.Heartbeat
	err error // it cannot be read, or breaks the rules of its record
	at  time.Time
}

// A guest is a case that this worker played, kept for frames that come too late.
type guest struct {
	result  *Case
	inboxes []*inbox
}

// open starts a worker and waits until it is ready.
func (l *lane) open(ctx context.Context, root string) (*house, error) {
	h := &house{cfg: l.cfg, inboxes: map[string]*inbox{}, news: make(chan struct{}, 1), root: nats.NewInbox()}
	if err := h.start(ctx, l, root); err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

func (h *house) start(ctx context.Context, l *lane, root string) (err error) {
	if h.conn, err = bus.Connect(ctx, bus.Config{URL: l.url, Prefix: root, Name: "conformance"}); err != nil {
		return fmt.Errorf("conformance: %w", err)
	}
	h.nc, h.subjects = h.conn.NATS(), h.conn.Subjects()
	if _, err := h.nc.Subscribe(h.root+".*", h.take); err != nil {
		return fmt.Errorf("conformance: %w", err)
	}
	if _, err := h.nc.Subscribe(h.subjects.Heartbeats(), h.hear); err != nil {
		return fmt.Errorf("conformance: %w", err)
	}
	if err := h.nc.FlushTimeout(patience); err != nil {
		return fmt.Errorf("conformance: %w", err)
	}
	if l.cfg.Level.includes(Full) {
		if err := h.conn.EnsureTopology(ctx); err != nil {
			return fmt.Errorf("conformance: %w", err)
		}
	}

	address := l.url
	if l.server != nil {
		at, err := url.Parse(l.url)
		if err != nil {
			return err
		}
		if h.link, err = newLink(at.Host, l.cfg.out, l.cfg.in, h.saw); err != nil {
			return err
		}
		address = h.link.url()
	}
	if h.process, err = startProcess(l.cfg, address, root); err != nil {
		return err
	}
	if err := h.ready(ctx); err != nil {
		return fmt.Errorf("%w; it said:\n%s", err, indent(h.process.stderr.since(0)))
	}
	return nil
}

// ready waits until the worker has announced itself. Plain ones do not: somebody must listen.
func (h *house) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	for h.cfg.Level == Plain {
		_, err := h.nc.RequestWithContext(ctx, h.subjects.Call(barrierTool), []byte("{}"))
		if !errors.Is(err, nats.ErrNoResponders) {
			return h.unready(ctx, err)
		}
		select {
		case <-time.After(askAgain): // NATS tells nobody who comes
		case <-h.process.done:
			return h.unready(ctx, nil)
		case <-ctx.Done():
		}
	}
	for {
		if b, ok := h.beatAfter(0, func(b beat) bool { return b.err == nil }); ok {
			h.worker = b.Worker
			return nil
		}
		select {
		case <-h.news:
		case <-h.process.done:
			return h.unready(ctx, nil)
		case <-ctx.Done():
			return h.unready(ctx, ctx.Err())
		}
	}
}

func (h *house) unready(ctx context.Context, err error) error {
	switch {
	case h.process.ended():
		return fmt.Errorf("the worker ended before it was ready: %v", h.process.cmd.ProcessState)
	case ctx.Err() != nil && h.cfg.Level == Plain:
		return fmt.Errorf("nobody listened on %s within %v", h.subjects.Call(barrierTool), readyTime)
	case ctx.Err() != nil:
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, b := range h.beats {
			return fmt.Errorf("its heartbeats cannot be read: %w", b.err)
		}
		return fmt.Errorf("no heartbeat came on %s within %v", h.subjects.Heartbeats(), readyTime)
	}
	return err
}

// close ends the worker and all that is its own.
func (h *house) close() {
	if h.process != nil {
		h.process.kill()
	}
	if h.link != nil {
		h.link.close()
	}
	if h.conn != nil {
		h.conn.Close()
		<-h.conn.Closed()
	}
}

func (h *house) take(m *nats.Msg) {
	h.mu.Lock()
	b := h.inboxes[m.Subject]
	h.mu.Unlock()
	if b != nil {
		b.put(m)
	}
}

func (h *house) hear(m *nats.Msg) {
	b := beat{at: time.Now()}
	if b.err = wire.Decode(m.Data, &b.Heartbeat); b.err == nil {
		b.err = b.Check()
	}
	if b.err == nil && m.Subject != h.subjects.Heartbeat(b.Worker) {
		b.err = fmt.Errorf("it names the worker %q and came on %s", b.Worker, m.Subject)
	}
	h.mu.Lock()
	if len(h.beats) < maxBeats {
		h.beats = append(h.beats, b)
	}
	h.mu.Unlock()
	select {
	case h.news <- struct{}{}:
	default:
	}
}

// beatAfter is the first heartbeat from number n on that fits.
func (h *house) beatAfter(n int, fits func(beat) bool) (beat, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range h.beats[min(n, len(h.beats)):] {
		if fits(b) {
			return b, true
		}
	}
	return beat{}, false
}

func (h *house) beatCount() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.beats)
}

// saw looks at what the worker publishes: heartbeats of its own, answers, claim checks and JetStream's API.
func (h *house) saw(p *packet) {
	blobs := strings.TrimSuffix(h.subjects.Blobs(), ">")
	hearts := strings.TrimSuffix(h.subjects.Heartbeats(), "*")
	for _, ok := range []string{h.root + ".", "_INBOX.", "_INBOX_", "_R_.", "$JS.API.", "$JS.ACK.", blobs, hearts} {
		if strings.HasPrefix(p.subject, ok) {
			return
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, expected := h.inboxes[p.subject]; !expected && len(h.foreign) < 100 {
		h.foreign = append(h.foreign, p.subject)
	}
}

// strangers are the foreign subjects that were heard of since the last question.
func (h *house) strangers() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.foreign
	h.foreign = nil
	slices.Sort(all)
	return slices.Compact(all)
}

// inbox makes one. With a subject it listens there, else to one of its own.
func (h *house) inbox(name, subject string) (*inbox, error) {
	own := subject == ""
	if own {
		subject = h.root + "." + strings.TrimPrefix(nats.NewInbox(), "_INBOX.")
	}
	b := newInbox(name, subject)
	h.mu.Lock()
	h.inboxes[subject] = b
	h.mu.Unlock()
	if own {
		return b, nil
	}
	if _, err := h.nc.Subscribe(subject, b.put); err != nil {
		return nil, err
	}
	return b, h.nc.FlushTimeout(patience)
}

func (h *house) publish(subject, reply string, header wire.Header, data []byte) error {
	return h.nc.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Header: nats.Header(header), Data: data})
}

// barrier waits until what the worker had said before is here: it asks for an echo, whatever the answer is.
func (h *house) barrier() {
	if h.process.ended() {
		return
	}
	b, err := h.inbox("barrier", "")
	if err == nil && h.publish(h.subjects.Call(barrierTool), b.subject, nil, []byte("{}")) == nil {
		b.next(patience, false)
	}
}

// lateFrames finds what came to cases that were over, and fails them.
func (h *house) lateFrames() {
	for _, g := range h.guests {
		for _, b := range g.inboxes {
			for _, f := range b.late() {
				g.result.fail("%s: when the case was over came %s", b.name, f)
			}
		}
	}
}

func indent(s string) string {
	if s = strings.TrimSpace(s); s == "" {
		return "    nothing"
	}
	return "    " + strings.ReplaceAll(s, "\n", "\n    ")
}

// settle returns when all that the worker said so far was taken in: a flush alone says that it has come, and not that the
// subscriptions have seen it.
func (h *house) settle() error {
	if err := h.nc.FlushTimeout(patience); err != nil {
		return err
	}
	seen := make(chan struct{})
	if err := h.nc.Barrier(func() { close(seen) }); err != nil {
		return err
	}
	select {
	case <-seen:
		return nil
	case <-time.After(patience):
		return errors.New("what the worker said was not taken in")
	}
}
