package registry

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// The fold is told lines like
//
//	1s beat w1 2 echo@1.0#aa calc#cc draining    at +1s worker w1 beats, its Seq is 2, with two tools
//	1s learn echo@1.0#aa
//	1s gone w1
//	4s expire
//
// and tells, for each line that changed something, the time, the changes, the tools that were made anew, as
// name=digest[workers] with !digest[workers] for each conflict and ? for a manifest that is not there, and what to ask for.
func TestFold(t *testing.T) {
	for _, test := range []struct{ name, script, want string }{
		{"a worker comes, is asked, beats and goes", `
			0s hello w1 1 echo@1#aa
			0s learn echo@1#aa
			1s beat w1 2 echo@1#aa
			2s beat w1 3 echo@1#aa
			2s bye w1 4`, `
			+0s worker_joined w1; echo=?[w1]; ask echo#aa
			+0s tool_added echo aa; echo=aa[w1]
			+2s worker_left w1; echo=aa[]`},
		{"three beats missed", `
			0s learn echo#aa
			0s beat w1 1 echo#aa
			3s expire
			3.099s expire
			3.1s expire`, `
			+0s tool_added echo aa; echo=aa[]
			+0s worker_joined w1; echo=aa[w1]
			+3.1s worker_left w1; echo=aa[]`},
		{"a manifest that never came is asked for again, and forgotten with its last worker", `
			0s beat w1 1 echo#aa
			1s beat w1 2 echo#aa
			2s bye w1 3`, `
			+0s worker_joined w1; echo=?[w1]; ask echo#aa
			+1s ask echo#aa
			+2s worker_left w1; echo removed`},
		{"a tool without a digest has workers and nothing to ask for", `
			0s beat w1 1 echo`, `
			+0s worker_joined w1; echo=?[w1]`},
		{"gone until the next beat; an old beat is no news", `
			0s learn echo#aa
			0s beat w1 5 echo#aa
			1s gone w1
			1s beat w1 5 echo#aa
			1s gone w1
			2s beat w1 6 echo#aa`, `
			+0s tool_added echo aa; echo=aa[]
			+0s worker_joined w1; echo=aa[w1]
			+1s worker_left w1; echo=aa[]
			+1s error: an older heartbeat than the one before
			+2s worker_joined w1; echo=aa[w1]`},
		{"a bye is not undone by a beat that was overtaken, for a while", `
			0s learn echo#aa
			0s beat w1 5 echo#aa
			1s bye w1 7
			1s beat w1 6 echo#aa
			5s expire
			5s beat w1 1 echo#aa`, `
			+0s tool_added echo aa; echo=aa[]
			+0s worker_joined w1; echo=aa[w1]
			+1s worker_left w1; echo=aa[]
			+1s error: an older heartbeat than the one before
			+5s worker_joined w1; echo=aa[w1]`},
		{"another process under the same name", `
			0s learn echo#aa
			0s beat w1 5 echo#aa
			1s hello w1 1 echo#aa
			2s beat w1 2 echo#aa
			2s bye w1 3`, `
			+0s tool_added echo aa; echo=aa[]
			+0s worker_joined w1; echo=aa[w1]
			+1s worker_left w1 worker_joined w1; echo=aa[w1]
			+2s worker_left w1; echo=aa[]`},
		{"draining workers take no calls", `
			0s learn echo#aa
			0s beat w1 1 echo#aa
			0s beat w2 1 echo#aa
			1s beat w1 2 echo#aa draining
			2s beat w1 3 echo#aa draining
			3s beat w1 4 echo#aa`, `
			+0s tool_added echo aa; echo=aa[]
			+0s worker_joined w1; echo=aa[w1]
			+0s worker_joined w2; echo=aa[w1 w2]
			+1s echo=aa[w2]
			+3s echo=aa[w1 w2]`},
		{"other tools than before", `
			0s beat w1 1 a b
			1s beat w1 2 b c`, `
			+0s worker_joined w1; a=?[w1] b=?[w1]
			+1s b=?[w1] c=?[w1] a removed`},
		{"the higher version holds, and the conflict is told once", `
			0s learn echo@1.9#aa
			0s learn echo@1.10#bb
			0s beat w1 1 echo@1.9#aa
			0s beat w2 1 echo@1.9#aa
			1s beat w3 1 echo@1.10#bb
			2s beat w2 2 echo@1.9#aa draining
			3s bye w1 2`, `
			+0s tool_added echo aa; echo=aa[]
			+0s tool_changed echo bb; echo=bb[]
			+0s worker_joined w1 tool_changed echo aa; echo=aa[w1]
			+0s worker_joined w2; echo=aa[w1 w2]
			+1s worker_joined w3 tool_changed echo bb tool_conflict echo bb; echo=bb[w1 w2 w3]!aa[w1 w2]
			+2s echo=bb[w1 w3]!aa[w1]
			+3s worker_left w1; echo=bb[w3]`},
		{"of equal versions the one that most run holds, then the smaller digest", `
			0s learn echo@1#aa
			0s learn echo@1#bb
			0s beat w1 1 echo@1#aa
			0s beat w2 1 echo@1#bb
			0s beat w3 1 echo@1#bb`, `
			+0s tool_added echo aa; echo=aa[]
			+0s tool_changed echo bb; echo=bb[]
			+0s worker_joined w1 tool_changed echo aa; echo=aa[w1]
			+0s worker_joined w2 tool_conflict echo aa; echo=aa[w1 w2]!bb[w2]
			+0s worker_joined w3 tool_changed echo bb; echo=bb[w1 w2 w3]!aa[w1]`},
		{"a manifest that is not there does not hold", `
			0s learn echo@1#aa
			0s beat w1 1 echo@1#aa
			1s beat w2 1 echo@2#bb
			1s learn echo@2#bb`, `
			+0s tool_added echo aa; echo=aa[]
			+0s worker_joined w1; echo=aa[w1]
			+1s worker_joined w2 tool_conflict echo aa; echo=aa[w1 w2]!bb[w2]; ask echo#bb
			+1s tool_changed echo bb; echo=bb[w1 w2]!aa[w1]`},
		{"what a beat says of the version of a manifest that is there does not count", `
			0s learn echo@1#aa
			0s learn echo@2#bb
			0s beat w1 1 echo@2#bb
			0s beat w2 1 echo@99#aa`, `
			+0s tool_added echo aa; echo=aa[]
			+0s tool_changed echo bb; echo=bb[]
			+0s worker_joined w1; echo=bb[w1]
			+0s worker_joined w2 tool_conflict echo bb; echo=bb[w1 w2]!aa[w2]`},
		{"when all are gone, what ran last holds", `
			0s learn echo#aa
			0s learn echo#bb
			0s beat w1 1 echo#aa
			1s bye w1 2`, `
			+0s tool_added echo aa; echo=aa[]
			+0s tool_changed echo bb; echo=bb[]
			+0s worker_joined w1 tool_changed echo aa; echo=aa[w1]
			+1s worker_left w1; echo=aa[]`},
		{"nothing of a worker that nobody knows", `
			0s bye w1 9
			0s gone w1
			0s expire`, ``},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, want := tell(newCatalogue(3), test.script), lines(test.want); got != want {
				t.Errorf("the fold tells\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func lines(s string) string {
	var out []string
	for l := range strings.Lines(s) {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n")
}

var start = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

func tell(c *catalogue, script string) string {
	var out []string
	for _, l := range strings.Split(lines(script), "\n") {
		word := strings.Fields(l)
		after, err := time.ParseDuration(word[0])
		if err != nil {
			panic(err)
		}
		now := start.Add(after)
		var d delta
		switch word[1] {
		case "learn":
			d, _ = c.learn(formOf(word[2]))
		case "gone":
			d = c.gone(now, word[2], "test")
		case "expire":
			d, _ = c.expire(now)
		default:
			d, err = c.beat(now, heartbeat(word[1:]))
		}
		if s := show(d, err); s != "" {
			out = append(out, fmt.Sprintf("+%v %s", after, s))
		}
	}
	return strings.Join(out, "\n")
}

// heartbeat reads: state worker seq tool@version#digest ... draining
func heartbeat(word []string) *wire.Heartbeat {
	seq, _ := strconv.ParseInt(word[2], 10, 64)
	hb := &wire.Heartbeat{State: word[0], Worker: word[1], Seq: seq, EveryMs: 1000}
	for _, w := range word[3:] {
		if w == "draining" {
			hb.Draining = true
			continue
		}
		hb.Tools = append(hb.Tools, line(w))
	}
	return hb
}

func line(s string) wire.ToolLine {
	rest, digest, _ := strings.Cut(s, "#")
	id, version, _ := strings.Cut(rest, "@")
	return wire.ToolLine{ID: id, Version: version, Digest: digest}
}

func formOf(s string) *form {
	l := line(s)
	return &form{compiled: &tool.Compiled{Manifest: tool.Manifest{ID: l.ID, Version: l.Version}}, digest: l.Digest}
}

func show(d delta, err error) string {
	var parts []string
	add := func(words []string) {
		if len(words) > 0 {
			parts = append(parts, strings.Join(words, " "))
		}
	}
	var changes, tools, ask []string
	for _, c := range d.changes {
		changes = append(changes, strings.Join(strings.Fields(fmt.Sprint(c.Kind, " ", c.Worker, " ", c.Tool, " ", c.Digest)), " "))
	}
	for _, m := range d.made {
		tools = append(tools, showTool(m))
	}
	for _, name := range d.removed {
		tools = append(tools, name+" removed")
	}
	for _, l := range d.ask {
		ask = append(ask, "ask "+l.ID+"#"+l.Digest)
	}
	add(changes)
	add(tools)
	add(ask)
	if err != nil {
		add([]string{"error:", err.Error()})
	}
	return strings.Join(parts, "; ")
}

func showTool(t *Tool) string {
	digest := t.Digest
	if t.Compiled == nil {
		digest = "?"
	}
	var ids []string
	for _, w := range t.Workers {
		ids = append(ids, w.ID)
	}
	s := fmt.Sprintf("%s=%s%v", t.Name, digest, ids)
	for _, v := range t.Conflicts {
		s += fmt.Sprintf("!%s%v", v.Digest, v.Workers)
	}
	return s
}

// A worker that was away for a moment is the same Instance; another process under its name is another.
func TestInstanceIsStable(t *testing.T) {
	c := newCatalogue(3)
	beat := func(words string) *Instance {
		if _, err := c.beat(start, heartbeat(strings.Fields(words))); err != nil {
			t.Fatal(err)
		}
		return c.workers["w1"].Instance
	}
	first := beat("hello w1 1 echo")
	c.gone(start, "w1", "test")
	if again := beat("beat w1 2 echo"); again != first {
		t.Error("after Gone and a beat: another Instance, want the same")
	}
	if other := beat("hello w1 1 echo"); other == first {
		t.Error("after another hello: the same Instance, want another")
	}
}

func TestBounds(t *testing.T) {
	t.Run("workers", func(t *testing.T) {
		c := newCatalogue(3)
		for i := range maxWorkers {
			if _, err := c.beat(start, heartbeat([]string{"beat", fmt.Sprint("w", i), "1"})); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.beat(start, heartbeat([]string{"beat", "one-more", "1"})); err != errFull {
			t.Errorf("beat of worker %d: %v, want %v", maxWorkers+1, err, errFull)
		}
		c.expire(start.Add(time.Hour))
		if len(c.workers) != 0 || len(c.left) != maxWorkers {
			t.Errorf("after an hour %d workers live and %d left, want 0 and %d", len(c.workers), len(c.left), maxWorkers)
		}
		c.expire(start.Add(2 * time.Hour))
		if len(c.left) != 0 {
			t.Errorf("after two hours %d that left are remembered, want 0", len(c.left))
		}
	})
	t.Run("tools", func(t *testing.T) {
		c := newCatalogue(3)
		refused := 0
		for w := range maxTools/wire.MaxTools + 1 {
			hb := &wire.Heartbeat{Worker: fmt.Sprint("w", w), Seq: 1}
			for i := range wire.MaxTools {
				hb.Tools = append(hb.Tools, wire.ToolLine{ID: fmt.Sprintf("t%d-%d", w, i)})
			}
			d, _ := c.beat(start, hb)
			refused += d.refused
		}
		if len(c.tools) != maxTools || refused != wire.MaxTools {
			t.Errorf("%d tools, %d refused, want %d and %d", len(c.tools), refused, maxTools, wire.MaxTools)
		}
	})
	t.Run("tools of all workers", func(t *testing.T) {
		c := newCatalogue(3)
		c.places = maxPlaces - 1 // as if there were many
		d, _ := c.beat(start, heartbeat(strings.Fields("beat w1 1 a b")))
		if d.refused != 2 || c.places != maxPlaces-1 {
			t.Errorf("%d of 2 tools refused, %d places, want 2 and %d", d.refused, c.places, maxPlaces-1)
		}
		d, _ = c.beat(start, heartbeat(strings.Fields("beat w1 2 a")))
		if d.refused != 0 || c.places != maxPlaces {
			t.Errorf("%d of 1 tool refused, %d places, want 0 and %d", d.refused, c.places, maxPlaces)
		}
	})
	t.Run("manifests of a tool", func(t *testing.T) {
		c := newCatalogue(3)
		c.learn(formOf("echo#used"))
		c.beat(start, heartbeat([]string{"beat", "w1", "1", "echo#used"}))
		var dropped []string
		for i := range maxForms + 1 {
			d, ok := c.learn(formOf(fmt.Sprint("echo#", i)))
			if !ok {
				t.Fatalf("manifest %d was refused, want an unused one to make room", i)
			}
			for _, f := range d.dropped {
				dropped = append(dropped, f.digest)
			}
		}
		if want := []string{"0", "1"}; !slices.Equal(dropped, want) {
			t.Errorf("dropped %v, want the oldest unused: %v", dropped, want)
		}
	})
}

func TestCompareVersions(t *testing.T) {
	ordered := []string{"", "1.0-beta", "2.0.0-rc1", "canary", "0", "v0.9", "1", "1.0.1", "1.2", "1.10", "2", "18446744073709551616.0"}
	for i, a := range ordered {
		for j, b := range ordered {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := compareVersions(a, b); got != want {
				t.Errorf("compareVersions(%q, %q) = %d, want %d", a, b, got, want)
			}
		}
	}
	for _, same := range [][2]string{{"1", "1.0.0"}, {"v1.2", "1.2"}, {"01.2", "1.02"}} {
		if got := compareVersions(same[0], same[1]); got != 0 {
			t.Errorf("compareVersions(%q, %q) = %d, want 0", same[0], same[1], got)
		}
	}
}

// A beat that says what the one before said costs next to nothing.
func TestBeatDoesNotAllocate(t *testing.T) {
	c := newCatalogue(3)
	hb := heartbeat(strings.Fields("beat w1 1 a b c"))
	c.beat(start, hb)
	if n := testing.AllocsPerRun(100, func() {
		hb.Seq++
		hb.Running++
		if d, err := c.beat(start, hb); err != nil || len(d.made) > 0 {
			t.Fatalf("beat made %d tools anew, %v, want none", len(d.made), err)
		}
	}); n != 0 {
		t.Errorf("a beat allocates %v times, want 0", n)
	}
}
