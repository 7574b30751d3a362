package registry_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// allocated is how many bytes f allocated, others' included.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

var bombs = map[string]string{
	"array of 4 G":     "\xdd\xff\xff\xff\xff",
	"map of 4 G":       "\xdf\xff\xff\xff\xff",
	"bytes of 2 G":     "\xc6\x7f\xff\xff\xff",
	"deep arrays":      strings.Repeat("\x91", 60_000),
	"deep maps":        strings.Repeat("\x81\xa1a", 20_000),
	"wide deep arrays": strings.Repeat("\xdc\xff\xff", 20_000),
}

func TestHeartbeatBombs(t *testing.T) {
	c := natstest.Connect(t, natstest.Server(t))
	r, changes, _ := run(t, registry.Config{Bus: c})
	n := allocated(func() {
		for range 20 {
			for name, bomb := range bombs {
				if f := c.Publish(c.Subjects().Heartbeat("w1"), nil, []byte(bomb)); f != nil {
					t.Fatalf("%s: %v", name, f)
				}
			}
		}
		newWorker(t, c, "w2", manifest("echo", "1")).beat(wire.Hello)
		await(t, changes, registry.ToolAdded)
	})
	if n > 64<<20 {
		t.Errorf("%d MiB allocated for %d bombs", n>>20, 20*len(bombs))
	}
	if workers := r.Workers(); len(workers) != 1 {
		t.Errorf("workers %v, want w2", workers)
	}
}

// Twenty thousand workers that are none: as many as there is room for are believed, and an honest one that was there
// stays.
func TestHeartbeatFlood(t *testing.T) {
	c := natstest.Connect(t, natstest.Server(t))
	r, changes, _ := run(t, registry.Config{Bus: c})
	honest := newWorker(t, c, "honest", manifest("echo", "1"))
	honest.beat(wire.Hello, func(hb *wire.Heartbeat) { hb.EveryMs = 600_000 }) // one that falls silent meanwhile finds its place taken
	await(t, changes, registry.ToolAdded)
	drained := make(chan struct{})
	t.Cleanup(func() { close(drained) })
	go func() { // or it would be held up
		for {
			select {
			case <-changes:
			case <-drained:
				return
			}
		}
	}()
	for i := range 20_000 {
		id := fmt.Sprint("fake", i)
		data, err := wire.Marshal(wire.MsgPack, &wire.Heartbeat{Worker: id, State: wire.Beat, EveryMs: 600_000, Seq: 1,
			Tools: []wire.ToolLine{{ID: fmt.Sprint("tool", i%2000), Digest: "aa"}, {ID: fmt.Sprint("echo", i%10)[:4+min(i%10, 1)], Digest: "bb"}}})
		if err != nil {
			t.Fatal(err)
		}
		if f := c.Publish(c.Subjects().Heartbeat(id), nil, data); f != nil {
			t.Fatal(f)
		}
	}
	honest.beat(wire.Beat, func(hb *wire.Heartbeat) { hb.Capacity = 77 }) // it comes after all the others
	for end := time.Now().Add(60 * time.Second); ; {                      // nothing tells of a load
		if slices.ContainsFunc(r.Workers(), func(w registry.WorkerInfo) bool { return w.ID == "honest" && w.Capacity == 77 }) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the honest worker is not heard any more")
		}
		<-time.After(50 * time.Millisecond)
	}
	if n := len(r.Workers()); n > 10_000 {
		t.Errorf("%d workers, want 10,000 at most", n)
	}
	if n := len(r.Tools()); n > 10_000 {
		t.Errorf("%d tools, want 10,000 at most", n)
	}
	if e := r.Tool("echo"); e == nil || e.Compiled == nil || e.Version != "1" {
		t.Errorf("echo has version %q, manifest %v, want the honest one to hold", e.Version, e.Compiled != nil)
	}
}

// Answers to Describe that are none, or too much.
func TestHostileDescriptions(t *testing.T) {
	answers := map[string][]byte{}
	for name, bomb := range bombs {
		answers[name] = []byte(bomb)
	}
	many := wire.DescribeRecord{Worker: "w1"}
	for i := range 10_000 {
		many.Manifests = append(many.Manifests, tool.Manifest{ID: fmt.Sprint("t", i), Version: "1"})
	}
	data, err := wire.Marshal(wire.JSON, &many)
	if err != nil {
		t.Fatal(err)
	}
	answers["10,000 manifests"] = data
	answers["no manifests"] = []byte(`{"worker":"w1","manifests":[]}`)
	answers["a schema that never ends"] = []byte(`{"worker":"w1","manifests":[{"id":"evil","version":"1","description":"x","input_schema":` + doubling(26) + `}]}`)
	answers["a schema from the disk"] = []byte(`{"worker":"w1","manifests":[{"id":"evil","version":"1","description":"x","input_schema":{"$ref":"file:///etc/passwd"}}]}`)

	c := natstest.Connect(t, natstest.Server(t))
	r, changes, _ := run(t, registry.Config{Bus: c})
	i := 0
	n := allocated(func() {
		for name, data := range answers {
			i++
			id := fmt.Sprint("w", i)
			w := &fakeWorker{t: t, c: c, hb: wire.Heartbeat{Worker: id, EveryMs: 1000, Tools: []wire.ToolLine{{ID: "evil", Digest: id}}}}
			answered := make(chan struct{}, 10)
			w.subscribe(c.Subjects().To(id), func(m *nats.Msg) {
				if f := c.Respond(m.Reply, wire.Header{wire.HeaderFrame: {string(wire.Manifests)}}, data); f != nil {
					t.Errorf("%s: %v", name, f)
				}
				answered <- struct{}{}
			})
			w.beat(wire.Hello)
			<-answered
		}
		newWorker(t, c, "honest", manifest("echo", "1")).beat(wire.Hello)
		for ch := await(t, changes, registry.ToolAdded); ch.Tool != "echo"; ch = await(t, changes, registry.ToolAdded) {
			t.Errorf("%s was believed", ch.Tool)
		}
	})
	if n > 128<<20 {
		t.Errorf("%d MiB allocated", n>>20)
	}
	if e := r.Tool("evil"); e == nil || e.Compiled != nil {
		t.Errorf("evil is %+v, want a tool without a manifest", e)
	}
}

// doubling is a schema of n levels, each of which asks for the next one twice.
func doubling(n int) string {
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
	for i := range n {
		fmt.Fprintf(&b, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	fmt.Fprintf(&b, `"d%d":{}}}`, n)
	return b.String()
}
