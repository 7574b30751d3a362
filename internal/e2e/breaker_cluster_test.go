//go:build unix

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/internal/natstest"
)

// With this variable set this program is a NATS server with that configuration file, and no test.
const nodeConfig = "TOOLBUS_E2E_NODE"

func init() {
	file := os.Getenv(nodeConfig)
	if file == "" {
		return
	}
	s, err := bus.StartServer(bus.ServerConfig{ConfigFile: file})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("listening on", s.ClientURL())
	<-cli.Signals(context.Background()).Done()
	s.Shutdown()
	os.Exit(0)
}

// A cluster is three NATS servers, each a process of its own, with a wire between any two that can be cut.
type cluster struct {
	t     testing.TB
	nodes [3]*node
	wires []*link
}

type node struct {
	name, file, url string
	process         *process
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{t: t}
	ports := natstest.FreePorts(t, 6)
	routes := ports[3:]
	dir := t.TempDir()
	for i := range c.nodes {
		name, port := fmt.Sprint("n", i+1), ports[i]
		var peers []string
		for j := range routes {
			if i != j {
				peers = append(peers, "nats-route://"+c.wire(i, j, fmt.Sprintf("127.0.0.1:%d", routes[j])))
			}
		}
		// Nobody is at the address that is advertised: so servers meet over our wires alone.
		conf := fmt.Sprintf(`server_name: %s
listen: "127.0.0.1:%d"
jetstream { store_dir: %q, max_file_store: 4GB, max_memory_store: 64MB }
cluster { name: e2e, listen: "127.0.0.1:%d", advertise: "127.0.0.1:1", no_advertise: true, routes: [ %s ] }
`, name, port, filepath.Join(dir, name), routes[i], strings.Join(peers, ", "))
		file := filepath.Join(dir, name+".conf")
		if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		c.nodes[i] = &node{name: name, file: file, url: fmt.Sprintf("nats://127.0.0.1:%d", port)}
	}
	for _, n := range c.nodes {
		c.start(n)
	}
	conn := natstest.Dial(t, bus.Config{URL: c.urls()})
	until(t, "the cluster has a leader", 30*time.Second, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := conn.JetStream().AccountInfo(ctx)
		return err == nil
	})
	return c
}

func (c *cluster) start(n *node) {
	c.t.Helper()
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	n.process = start(c.t, launch{path: self, env: []string{nodeConfig + "=" + n.file}})
	n.process.says("listening on")
}

// urls is where all listen, but for those left out.
func (c *cluster) urls(without ...*node) string {
	var all []string
next:
	for _, n := range c.nodes {
		for _, w := range without {
			if n == w {
				continue next
			}
		}
		all = append(all, n.url)
	}
	return strings.Join(all, ",")
}

// leader is who leads a bucket now, or nil.
func (c *cluster) leader(conn *bus.Conn, bucket string) *node {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
	defer cancel()
	s, err := conn.JetStream().Stream(ctx, "KV_"+bucket)
	if err != nil || s.CachedInfo().Cluster == nil {
		return nil
	}
	for _, n := range c.nodes {
		if n.name == s.CachedInfo().Cluster.Leader {
			return n
		}
	}
	return nil
}

// cut parts a node from the others, until the returned func is called.
func (c *cluster) cut(n *node) (heal func()) {
	var mine []*link
	for _, w := range c.wires {
		if c.nodes[w.from] == n || c.nodes[w.to] == n {
			mine = append(mine, w)
			w.set(true)
		}
	}
	return func() {
		for _, w := range mine {
			w.set(false)
		}
	}
}

// kill ends a node at once; pause holds it.
func (n *node) kill() {
	n.process.kill()
	<-n.process.over
}

func (n *node) pause() (goOn func()) {
	n.process.signal(syscall.SIGSTOP)
	return func() { n.process.signal(syscall.SIGCONT) }
}

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
