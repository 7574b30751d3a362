package kvstate_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/kvstate/kvstatetest"
)

func TestMemoryIsAStore(t *testing.T) {
	kvstatetest.Run(t, func(*testing.T) kvstatetest.Subject {
		m := kvstate.NewMemory()
		l, other := m.Line(), m.Line()
		return kvstatetest.Subject{
			Store: l, Other: other, Delete: other.Delete, Backup: func(*testing.T) func() { return m.Backup() },
			Anew: func(*testing.T) { m.Anew() },
			Deaf: func(deaf bool) { l.Trouble(kvstate.Trouble{Drop: func() bool { return deaf }}) },
			Reconnect: func(*testing.T) {
				l.Trouble(kvstate.Trouble{Away: true})
				l.Trouble(kvstate.Trouble{})
			},
		}
	})
}

func TestBucketIsAStore(t *testing.T) {
	for name, replicas := range map[string]int{"R1": 1, "R3": 3} {
		t.Run(name, func(t *testing.T) {
			addr := ""
			if replicas > 1 {
				addr = natstest.Cluster(t, replicas).URLs()
			}
			kvstatetest.Run(t, func(t *testing.T) kvstatetest.Subject { return bucket(t, addr, replicas) })
		})
	}
}

var buckets atomic.Int64 // so far

// bucket is a bucket on the cluster at addr, or on a server of its own.
func bucket(t *testing.T, addr string, replicas int) kvstatetest.Subject {
	cfg := bus.ServerConfig{Dir: t.TempDir(), Port: -1}
	var server *bus.Server
	if addr == "" {
		server = natstest.Start(t, cfg)
		addr = server.ClientURL()
	}
	mine, theirs := natstest.Dial(t, bus.Config{URL: addr}), natstest.Dial(t, bus.Config{URL: addr})
	kv := kvstate.Config{Bucket: fmt.Sprint("b", buckets.Add(1)), Replicas: replicas}
	other := open(t, theirs, kv)
	s := kvstatetest.Subject{
		Store: open(t, mine, kv), Other: other, Delete: other.Delete,
		Anew: func(t *testing.T) {
			if err := theirs.JetStream().DeleteKeyValue(t.Context(), kv.Bucket); err != nil {
				t.Fatal(err)
			}
			open(t, theirs, kv)
		},
		Reconnect: func(t *testing.T) {
			if err := mine.NATS().ForceReconnect(); err != nil {
				t.Fatal(err)
			}
		},
	}
	if server == nil {
		return s
	}
	// An old state is put back as people do it who have a copy of the folder, and as it comes by itself where a machine
	// lost power before the disk had everything.
	s.Backup = func(t *testing.T) func() {
		again := func(swap func()) {
			server.Shutdown()
			swap()
			cfg.Port = portOf(t, addr)
			server = natstest.Start(t, cfg)
			for _, c := range []*bus.Conn{mine, theirs} {
				await(t, c)
			}
		}
		copied := filepath.Join(t.TempDir(), "copy")
		again(func() { copyDir(t, cfg.Dir, copied) })
		return func() {
			again(func() {
				if err := os.RemoveAll(cfg.Dir); err != nil {
					t.Fatal(err)
				}
				copyDir(t, copied, cfg.Dir)
			})
		}
	}
	return s
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// await waits until the connection stands again.
func await(t *testing.T, c *bus.Conn) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); c.NATS().FlushTimeout(time.Second) != nil; {
		if time.Now().After(end) {
			t.Fatal("no connection to the server's second life")
		}
	}
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
