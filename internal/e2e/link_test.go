//go:build unix

package e2e

import (
	"io"
	"net"
	"sync"
	"time"
)

// A link is a wire from one node to another. While it is cut nothing comes through and nobody is told; when it is whole
// again, the connections that were held are closed.
type link struct {
	from, to int
	target   string
	l        net.Listener

	mu    sync.Mutex
	down  chan struct{} // not nil while it is cut; closed when it is whole again
	conns map[net.Conn]bool
	over  bool
	parts sync.WaitGroup
}

// wire makes a link and is its address.
func (c *cluster) wire(from, to int, target string) string {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	w := &link{from: from, to: to, target: target, l: l, conns: map[net.Conn]bool{}}
	c.wires = append(c.wires, w)
	w.parts.Go(w.accept)
	c.t.Cleanup(w.close)
	return l.Addr().String()
}

func (w *link) accept() {
	for {
		a, err := w.l.Accept()
		if err != nil {
			return
		}
		w.parts.Go(func() { w.carry(a) })
	}
}

func (w *link) carry(a net.Conn) {
	defer w.drop(a)
	if !w.add(a) || !w.whole() {
		return
	}
	b, err := net.DialTimeout("tcp", w.target, time.Second)
	if err != nil {
		return
	}
	defer w.drop(b)
	if !w.add(b) {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			defer a.Close()
			defer b.Close()
			w.copy(way[1], way[0])
		})
	}
	both.Wait()
}

func (w *link) copy(to io.Writer, from io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if !w.whole() {
			return // what was on the way is lost
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// whole is true at once where nothing is cut; else it waits until it is whole, and is false, for the connection is of
// before.
func (w *link) whole() bool {
	w.mu.Lock()
	down := w.down
	w.mu.Unlock()
	if down != nil {
		<-down
	}
	return down == nil
}

func (w *link) add(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.conns[c] = true
	}
	return !w.over
}

func (w *link) drop(c net.Conn) {
	c.Close()
	w.mu.Lock()
	delete(w.conns, c)
	w.mu.Unlock()
}

func (w *link) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case cut && w.down == nil:
		w.down = make(chan struct{})
	case !cut && w.down != nil:
		close(w.down)
		w.down = nil
		for c := range w.conns {
			c.Close()
		}
	}
}

func (w *link) close() {
	w.set(false)
	w.l.Close()
	w.mu.Lock()
	w.over = true
	for c := range w.conns {
		c.Close()
	}
	w.mu.Unlock()
	w.parts.Wait()
}
