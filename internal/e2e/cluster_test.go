//go:build unix

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// newCluster starts a cluster and waits until it has a leader.
func newCluster(t testing.TB) *cluster {
	t.Helper()
	c := layCluster(t)
	for _, n := range c.nodes {
		n.start(t)
	}
	c.led()
	return c
}

// layCluster is a cluster of which no server has been started.
func layCluster(t testing.TB) *cluster {
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
	return c
}

// led waits until the cluster has a leader.
func (c *cluster) led() {
	c.t.Helper()
	conn := natstest.Dial(c.t, bus.Config{URL: c.urls()})
	until(c.t, "the cluster has a leader", 30*time.Second, func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		defer cancel()
		_, err := conn.JetStream().AccountInfo(ctx)
		return err == nil
	})
}

func (n *node) start(t testing.TB) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n.process = start(t, launch{path: self, env: []string{nodeConfig + "=" + n.file}})
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

// leader is who leads a stream now, or nil.
func (c *cluster) leader(conn *bus.Conn, stream string) *node {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
	defer cancel()
	s, err := conn.JetStream().Stream(ctx, stream)
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

func (n *node) pause() (goOn func()) { return n.process.pause() }

// trouble does something to a node for a while: kill, partition or pause.
func (c *cluster) trouble(kind string, n *node, span time.Duration) {
	c.t.Helper()
	var mend func()
	switch kind {
	case "kill":
		n.kill()
		mend = func() { n.start(c.t) }
	case "partition":
		mend = c.cut(n)
	case "pause":
		mend = n.pause()
	}
	nap := time.NewTimer(span)
	<-nap.C
	mend()
}
