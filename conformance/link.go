package conformance

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/wire"
)

// Bounds of what a worker may make the link hold.
const (
	maxLine   = 64 << 10
	maxPacket = 64 << 20
)

// A packet is one message between a worker and its server.
type packet struct {
	subject, sid, reply string // the sid is of messages to the worker
	header              wire.Header
	data                []byte
}

// A tamper gives what goes on in the place of a packet. It is called from several goroutines.
type tamper func(p packet) []packet

// A link is a relay between a worker and a NATS server. It can be taken down, as if the server had gone.
type link struct {
	listener net.Listener
	server   string
	out, in  tamper        // of what the worker says and hears; nil lets all pass
	saw      func(*packet) // is told what the worker says

	mu    sync.Mutex
	down  bool
	conns map[net.Conn]struct{}
	all   sync.WaitGroup
}

// newLink listens on a free port of this machine.
func newLink(server string, out, in tamper, saw func(*packet)) (*link, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("conformance: link: %w", err)
	}
	k := &link{listener: l, server: server, out: out, in: in, saw: saw, conns: map[net.Conn]struct{}{}}
	k.all.Go(k.accept)
	return k, nil
}

func (k *link) url() string { return "nats://" + k.listener.Addr().String() }

// close ends the link and waits for its goroutines.
func (k *link) close() {
	k.listener.Close()
	k.set(true)
	k.all.Wait()
}

// set takes the link down, with all connections through it, or up.
func (k *link) set(down bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.down = down
	if down {
		for c := range k.conns {
			c.Close()
		}
	}
}

// hold keeps a connection for as long as the link is up; false means that it is down.
func (k *link) hold(c net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.down {
		c.Close()
		return false
	}
	k.conns[c] = struct{}{}
	return true
}

func (k *link) drop(c net.Conn) {
	c.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, c)
}

func (k *link) accept() {
	for {
		c, err := k.listener.Accept()
		if err != nil {
			return
		}
		k.all.Go(func() { k.relay(c) })
	}
}

func (k *link) relay(worker net.Conn) {
	if !k.hold(worker) {
		return
	}
	defer k.drop(worker)
	server, err := net.Dial("tcp", k.server)
	if err != nil || !k.hold(server) {
		return
	}
	defer k.drop(server)
	var back sync.WaitGroup
	back.Go(func() {
		pump(server, worker, []string{"MSG", "HMSG"}, k.in, func(*packet) {})
		worker.Close()
	})
	pump(worker, server, []string{"PUB", "HPUB"}, k.out, k.saw)
	server.Close()
	back.Wait()
}

// pump copies the NATS protocol from one connection to another, message by message.
func pump(from io.Reader, to io.Writer, ops []string, change tamper, saw func(*packet)) {
	r, w := bufio.NewReaderSize(from, maxLine), bufio.NewWriterSize(to, maxLine)
	for {
		if r.Buffered() == 0 && w.Flush() != nil {
			return
		}
		raw, p, err := readPacket(r, ops)
		if err != nil {
			w.Flush() // what came before the end goes on
			return
		}
		switch {
		case p == nil:
			w.Write(raw)
		case change == nil:
			saw(p)
			w.Write(raw)
		default:
			for _, q := range change(*p) {
				saw(&q)
				w.Write(q.encode(ops))
			}
		}
	}
}

// readPacket reads one line of the protocol and, where it begins a message, the message. The bytes are as they came.
func readPacket(r *bufio.Reader, ops []string) ([]byte, *packet, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return nil, nil, err
	}
	raw := bytes.Clone(line)
	fields := strings.Fields(string(line))
	headers := false
	switch {
	case len(fields) == 0:
		return raw, nil, nil
	case strings.EqualFold(fields[0], ops[1]):
		headers = true
	case !strings.EqualFold(fields[0], ops[0]):
		return raw, nil, nil
	}

	p := &packet{}
	fields = fields[1:]
	if ops[0] == "MSG" && len(fields) > 1 {
		p.sid = fields[1]
		fields = append(fields[:1:1], fields[2:]...)
	}
	sizes := 1
	if headers {
		sizes = 2
	}
	if len(fields) < 1+sizes || len(fields) > 2+sizes {
		return nil, nil, fmt.Errorf("line of %d words", len(fields))
	}
	p.subject = fields[0]
	if len(fields) == 2+sizes {
		p.reply = fields[1]
	}
	total, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil || total < 0 || total > maxPacket {
		return nil, nil, errors.New("size of a message")
	}
	body := make([]byte, total+2)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, nil, err
	}
	raw, p.data = append(raw, body...), body[:total]
	if headers {
		n, err := strconv.Atoi(fields[len(fields)-2])
		if err != nil || n < 0 || n > total {
			return nil, nil, errors.New("size of headers")
		}
		h, err := nats.DecodeHeadersMsg(p.data[:n])
		if err != nil {
			return nil, nil, err
		}
		p.header, p.data = wire.Header(h), p.data[n:]
	}
	return raw, p, nil
}

func (p *packet) encode(ops []string) []byte {
	var b, h bytes.Buffer
	if len(p.header) > 0 {
		h.WriteString("NATS/1.0\r\n")
		for name, values := range p.header {
			for _, v := range values {
				fmt.Fprintf(&h, "%s: %s\r\n", name, v)
			}
		}
		h.WriteString("\r\n")
	}
	op, sizes := ops[0], strconv.Itoa(len(p.data))
	if h.Len() > 0 {
		op, sizes = ops[1], fmt.Sprintf("%d %d", h.Len(), h.Len()+len(p.data))
	}
	words := []string{op, p.subject, p.sid, p.reply, sizes}
	b.WriteString(strings.Join(strings.Fields(strings.Join(words, " ")), " ") + "\r\n")
	b.Write(h.Bytes())
	b.Write(p.data)
	b.WriteString("\r\n")
	return b.Bytes()
}
