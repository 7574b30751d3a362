package conformance

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/wire"
)

// quick are cases that every broken worker plays: those that are meant to catch it must, and the others must not.
var quick = []string{"echo/object", "echo/unicode", "accept/slow", "arguments/violations", "cancel/during", "describe",
	"drain/idle", "error/crash", "error/retry-after", "keys/arguments", "keys/same", "micro/ping", "partial/order", "ping/call"}

// Workers that are broken on purpose fail the cases that are meant to catch them, and no others. What the link changes
// stands for what a worker gets wrong.
func TestBrokenWorkers(t *testing.T) {
	for _, test := range []struct {
		name    string
		out, in tamper
		script  string // a shell around the worker
		caught  string
	}{
		{name: "sound", caught: ""},
		{name: "answers twice", out: frames(wire.Result, twiceIf(`{"runs"`)), caught: "keys/arguments keys/same"},
		{name: "ignores cancel", in: frames(wire.Cancel, drop), caught: "cancel/before cancel/during"},
		{name: "lists no violations", out: frames(wire.ErrorFrame, without("violations")), caught: "arguments/violations"},
		{name: "beats without seq", out: beats(func(h *wire.Heartbeat) { h.Seq = 0 }), caught: "heartbeat/rhythm"},
		{name: "says hello to nobody", out: beats(func(h *wire.Heartbeat) {
			if h.State == wire.Hello {
				h.State = wire.Beat
			}
		}), caught: "heartbeat/hello"},
		{name: "never says that it drains", out: beats(func(h *wire.Heartbeat) { h.Draining = false }), caught: "drain/frame"},
		{name: "speaks of another call", out: frames(wire.Partial, set(wire.HeaderCall, "a/b/1")), caught: "partial/order"},
		{name: "speaks as another worker", out: frames(wire.Stopped, set(wire.HeaderWorker, "w9")), caught: "cancel/during"},
		{name: "counts pieces from 0", out: frames(wire.Partial, lower(wire.HeaderSeq)), caught: "partial/order"},
		{name: "does not drain", script: `"$0" & p=$!; trap 'kill -9 $p' TERM; wait $p; exit 0`, caught: "drain/idle"},
		{name: "ends with 1", script: `"$0" & p=$!; trap 'kill $p' TERM; wait $p; wait $p; exit 1`, caught: "drain/idle"},
		{name: "tells progress too often", out: frames(wire.Progress, twiceIf("")), caught: "progress/limit"},
		{name: "forgets when to come back", out: frames(wire.ErrorFrame, set(wire.HeaderRetryAfter, "")), caught: "error/retry-after"},
		{name: "knows no keys", in: frames("", set(wire.HeaderKey, "")), caught: "keys/arguments keys/same"},
		{name: "does not say what runs", out: frames(wire.Pong, set(wire.HeaderRunning, "")), caught: "ping/call"},
		{name: "hides its manifests", out: frames(wire.Manifests, drop), caught: "describe"},
		{name: "breaks text", out: frames(wire.Result, replace("🦊", "?")), caught: "echo/unicode"},
		{name: "publishes where it has no business", out: frames(wire.Result, also("nested", "elsewhere.x")), caught: "echo/object"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{out: test.out, in: test.in}
			want := strings.Fields(test.caught)
			cfg.pick = slices.Concat(quick, want)
			if test.script != "" {
				built, err := goworker()
				if err != nil {
					t.Fatal(err)
				}
				cfg.Command = []string{"sh", "-c", test.script, built}
			}
			r := against(t, cfg)
			var failed []string
			var why strings.Builder
			for _, c := range r.Cases {
				if c.Status != Passed {
					failed = append(failed, c.Name)
					c.line(&why, 0)
				}
			}
			slices.Sort(failed)
			if !slices.Equal(failed, want) {
				t.Errorf("failed %v, want %v\n%s", failed, want, why.String())
			}
		})
	}
}

// frames changes frames of one kind, "" being calls. It lets heartbeats and claim checks alone.
func frames(kind wire.Frame, change tamper) tamper {
	return func(p packet) []packet {
		frame := wire.FrameOf(p.header)
		if frame == "" && kind == wire.Result && strings.HasPrefix(p.subject, "_INBOX.") {
			frame = wire.Result
		}
		if frame != kind {
			return []packet{p}
		}
		p.header = maps.Clone(p.header)
		return change(p)
	}
}

func drop(packet) []packet { return nil }

func twiceIf(part string) tamper {
	return func(p packet) []packet {
		if strings.Contains(string(p.data), part) {
			return []packet{p, p}
		}
		return []packet{p}
	}
}

func set(name, value string) tamper {
	return func(p packet) []packet {
		for k := range p.header {
			if strings.EqualFold(k, name) {
				delete(p.header, k)
			}
		}
		if value != "" {
			p.header[name] = []string{value}
		}
		return []packet{p}
	}
}

func lower(name string) tamper {
	return func(p packet) []packet {
		p.header[name] = []string{string(wire.Get(p.header, name)[0] - 1)}
		return []packet{p}
	}
}

func without(field string) tamper {
	return func(p packet) []packet {
		var record map[string]any
		if json.Unmarshal(p.data, &record) == nil {
			delete(record, field)
			p.data, _ = json.Marshal(record)
		}
		return []packet{p}
	}
}

func replace(from, to string) tamper {
	return func(p packet) []packet {
		p.data = []byte(strings.ReplaceAll(string(p.data), from, to))
		return []packet{p}
	}
}

func also(part, subject string) tamper {
	return func(p packet) []packet {
		if !strings.Contains(string(p.data), part) {
			return []packet{p}
		}
		return []packet{p, {subject: subject, data: p.data}}
	}
}

func beats(change func(*wire.Heartbeat)) tamper {
	return func(p packet) []packet {
		if !strings.Contains(p.subject, ".hb.") {
			return []packet{p}
		}
		var h wire.Heartbeat
		if wire.Decode(p.data, &h) == nil {
			change(&h)
			p.data, _ = wire.Marshal(wire.MsgPack, &h)
		}
		return []packet{p}
	}
}
