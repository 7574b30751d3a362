package registry

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/toolbus/toolbus/wire"
)

// FuzzFold lets the bytes choose what the fold is told, and looks at it as its readers do.
func FuzzFold(f *testing.F) {
	f.Add([]byte("hello"))
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 255, 254, 253, 252})
	f.Add([]byte("\x00\x10\x01\x00\x20\x02\x40\x00\x00\x80\x00\x00\xc0\x7f\x00\x00\x11\x03"))
	f.Fuzz(func(t *testing.T, script []byte) {
		c, seen, now := newCatalogue(3), map[string]*Tool{}, start
		for len(script) >= 3 {
			what, who, how := script[0], script[1], script[2]
			script = script[3:]
			now = now.Add(time.Duration(what>>3) * 100 * time.Millisecond)
			worker := fmt.Sprint("w", who%5)
			var d delta
			switch what % 8 {
			case 0, 1, 2, 3:
				hb := &wire.Heartbeat{
					Worker:   worker,
					State:    []string{wire.Beat, wire.Hello, wire.Bye, "later"}[how%4],
					Seq:      int64(how >> 3),
					Draining: who&0x10 != 0,
					EveryMs:  int64(how) * 10,
				}
				for i := range who >> 5 {
					hb.Tools = append(hb.Tools, wire.ToolLine{ID: fmt.Sprint("t", (i+how)%4), Digest: fmt.Sprint("d", how%3)})
				}
				d, _ = c.beat(now, hb)
			case 4, 5:
				d, _ = c.learn(formOf(fmt.Sprintf("t%d@%d#d%d", who%4, how%3, how%20)))
			case 6:
				d = c.gone(now, worker, "fuzz")
			case 7:
				var next time.Time
				d, next = c.expire(now)
				for _, w := range c.workers {
					if !w.due.After(now) || next.After(w.due) {
						t.Fatalf("%s is due at %v, now is %v and the next look at %v", w.ID, w.due, now, next)
					}
				}
			}
			for _, m := range d.made {
				seen[m.Name] = m
			}
			for _, name := range d.removed {
				delete(seen, name)
			}
			look(t, c, seen)
		}
	})
}

// look checks what always holds.
func look(t *testing.T, c *catalogue, seen map[string]*Tool) {
	t.Helper()
	if len(seen) != len(c.tools) {
		t.Fatalf("readers see %d tools, want %d", len(seen), len(c.tools))
	}
	places := 0
	for name, e := range c.tools {
		places += len(e.places)
		if got, want := showTool(seen[name]), showTool(e.build()); got != want {
			t.Fatalf("readers see %s, want %s", got, want)
		}
		if len(e.forms) == 0 && len(e.places) == 0 || len(e.forms) > maxForms {
			t.Fatalf("%s has %d manifests and %d workers", name, len(e.forms), len(e.places))
		}
		ids := []string{}
		for _, w := range seen[name].Workers {
			if live := c.workers[w.ID]; live == nil || live.Instance != w || w.Draining() {
				t.Fatalf("%s shows %s, which is not live or drains", name, w.ID)
			}
			ids = append(ids, w.ID)
		}
		if !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
			t.Fatalf("%s shows workers %v, want them sorted and once each", name, ids)
		}
	}
	lines := 0
	for id, w := range c.workers {
		lines += len(w.lines)
		if c.left[id] != nil {
			t.Fatalf("%s is live and has left", id)
		}
		for _, l := range w.lines {
			if _, ok := c.tools[l.ID].find(id); !ok {
				t.Fatalf("%s runs %s, but %s does not know it", id, l.ID, l.ID)
			}
		}
	}
	if places != c.places || lines != c.places {
		t.Fatalf("%d places, %d lines, counted %d", places, lines, c.places)
	}
}
