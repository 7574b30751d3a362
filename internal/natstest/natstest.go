// Package natstest gives tests a real nats-server in their own process: alone or as a cluster of three, behind a port or
// only in process. What it starts ends with the test.
//
// Inside a testing/synctest bubble real sockets would keep the clock from moving, so there only InProcess and Connect
// serve. The recipe:
//
//	func TestMain(m *testing.M) { natstest.Main(m) }
//
//	func TestTimeout(t *testing.T) {
//		natstest.Bubble(t, func(t *testing.T) {
//			c := natstest.Connect(t, natstest.InProcess(t))
//			... // hours take milliseconds
//		})
//	}
package natstest

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/ats"
	"go.uber.org/goleak"

	"github.com/toolbus/toolbus/bus"
)

// Main runs the tests of a package that uses bubbles, and fails it where goroutines are left in the end. Call it from
// TestMain; it exits.
func Main(m *testing.M, ignore ...goleak.Option) {
	ats.Register() // the server's clock: started in a bubble, it would hold that bubble's time for ever
	goleak.VerifyTestMain(m, append(ignore, goleak.IgnoreCurrent())...)
}

// Bubble runs f in a bubble with a clock of its own. The package's TestMain must call Main. No test that uses NATS may
// run beside it: no t.Parallel in such packages.
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	emptyPools()
	defer emptyPools()
	synctest.Test(t, f)
}

// emptyPools takes away the timers that nats.go keeps in a sync.Pool, for a timer may not cross the border of a bubble.
// It takes two collections.
func emptyPools() {
	runtime.GC()
	runtime.GC()
}

// Server starts a server with JetStream on a free port of 127.0.0.1. Not for bubbles.
func Server(t testing.TB) *bus.Server {
	t.Helper()
	return Start(t, bus.ServerConfig{Port: -1, Lazy: true})
}

// InProcess starts a server with JetStream that does not listen. It works in a bubble.
func InProcess(t testing.TB) *bus.Server {
	t.Helper()
	return Start(t, bus.ServerConfig{DontListen: true, Lazy: true})
}

// Start starts a server as cfg says, in a directory of the test's where cfg names none.
func Start(t testing.TB, cfg bus.ServerConfig) *bus.Server {
	t.Helper()
	if cfg.Dir == "" && cfg.ConfigFile == "" {
		cfg.Dir = t.TempDir()
	}
	s, err := bus.StartServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

// URL starts a Server and is where it listens.
func URL(t testing.TB) string {
	t.Helper()
	return Server(t).ClientURL()
}

// Connect connects in process.
func Connect(t testing.TB, s *bus.Server) *bus.Conn {
	t.Helper()
	return Dial(t, bus.Config{Server: s})
}

// Dial connects as cfg says.
func Dial(t testing.TB, cfg bus.Config) *bus.Conn {
	t.Helper()
	c, err := bus.Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		<-c.Closed()
	})
	return c
}

// Nodes is a cluster in this process.
type Nodes struct {
	Servers []*server.Server
}

// URL is where node i listens.
func (n *Nodes) URL(i int) string { return n.Servers[i].ClientURL() }

// URLs is where all of them listen, for bus.Config.
func (n *Nodes) URLs() string {
	urls := make([]string, len(n.Servers))
	for i := range urls {
		urls[i] = n.URL(i)
	}
	return strings.Join(urls, ",")
}

// Cluster starts n servers with JetStream as one cluster and waits until it has a leader. Not for bubbles.
func Cluster(t testing.TB, n int) *Nodes {
	t.Helper()
	ports := FreePorts(t, n)
	routes := make([]string, n)
	for i, port := range ports {
		routes[i] = fmt.Sprintf("nats-route://127.0.0.1:%d", port)
	}
	dir := t.TempDir()
	nodes := &Nodes{}
	t.Cleanup(nodes.shutdown)
	for i, port := range ports {
		s, err := server.NewServer(&server.Options{
			ServerName:         fmt.Sprintf("n%d", i+1),
			Host:               "127.0.0.1",
			Port:               -1,
			Cluster:            server.ClusterOpts{Name: "natstest", Host: "127.0.0.1", Port: port},
			Routes:             server.RoutesFromStr(strings.Join(routes, ",")),
			JetStream:          true,
			StoreDir:           filepath.Join(dir, fmt.Sprint(i)),
			JetStreamMaxStore:  4 << 30,
			JetStreamMaxMemory: 256 << 20,
			NoSigs:             true,
			NoLog:              true,
		})
		if err != nil {
			t.Fatal(err)
		}
		nodes.Servers = append(nodes.Servers, s)
		s.Start()
	}
	for end := time.Now().Add(30 * time.Second); !nodes.ready(); {
		if time.Now().After(end) {
			t.Fatalf("a cluster of %d was not ready within 30 s", n)
		}
		time.Sleep(10 * time.Millisecond) // nats-server offers no signal to wait for
	}
	return nodes
}

func (n *Nodes) ready() bool {
	led := false
	for _, s := range n.Servers {
		if !s.ReadyForConnections(time.Second) || !s.JetStreamIsCurrent() {
			return false
		}
		led = led || s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == len(n.Servers)
	}
	return led
}

func (n *Nodes) shutdown() {
	for _, s := range n.Servers {
		s.Shutdown()
	}
	for _, s := range n.Servers {
		s.WaitForShutdown()
	}
}
