package mcptool

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// A desk is a bridge's tools on a bus, with one caller.
type desk struct {
	*testing.T
	bridge *Bridge
	worker *worker.Worker
	nc     *nats.Conn
}

func newDesk(t *testing.T, cfg Config) *desk {
	t.Helper()
	s := natstest.Server(t)
	b := open(t, cfg)
	w, err := worker.New(worker.Config{Bus: natstest.Connect(t, s), ID: "w1", Tools: b.Tools()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		await(t, ended, "the worker's end")
	})
	await(t, w.Ready(), "the worker")
	return &desk{t, b, w, natstest.Connect(t, s).NATS()}
}

// ask calls a tool; what comes back is in the channel.
func (d *desk) ask(tool, ref, args string) <-chan *nats.Msg {
	d.Helper()
	came := make(chan *nats.Msg, 100)
	inbox := nats.NewInbox()
	sub, err := d.nc.ChanSubscribe(inbox, came)
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { _ = sub.Unsubscribe() })
	m := nats.NewMsg("tb.v1.call." + tool)
	m.Reply, m.Data = inbox, []byte(args)
	m.Header[wire.HeaderCall] = []string{ref}
	if err := d.nc.PublishMsg(m); err != nil {
		d.Fatal(err)
	}
	return came
}

func TestProgressOnTheBus(t *testing.T) {
	for _, how := range []string{"good", "legacy"} {
		d := newDesk(t, program(how))
		came := d.ask("steps", "t/c/1", `{"wait":true}`)
		var frames []string
		for len(frames) == 0 || frames[len(frames)-1] != "" {
			m := await(t, came, "a frame")
			frames = append(frames, string(wire.FrameOf(m.Header)))
			if wire.FrameOf(m.Header) == wire.Progress {
				var p wire.ProgressRecord
				if err := json.Unmarshal(m.Data, &p); err != nil || p.Done != 1 || p.Total != 2 || p.Message != "half" {
					t.Errorf("%s: progress %s, %v, want 1/2 half", how, m.Data, err)
				}
				await(t, d.ask("go", "t/c2/1", "{}"), "the other call")
			}
		}
		if !strings.Contains(strings.Join(frames, " "), "progress") {
			t.Errorf("%s: frames %q, want progress among them", how, frames)
		}
	}
}

// Who cancels is told that the run is unknown: MCP servers do not say that they stopped.
func TestCancelOnTheBus(t *testing.T) {
	d := newDesk(t, program("good"))
	w := newWords(t)
	came := d.ask("hangs", "t/c/1", w.args())
	await(t, w.said, "the call")
	m := nats.NewMsg("tb.v1.cancel.hangs")
	m.Header[wire.HeaderCall] = []string{"t/c/1"}
	if err := d.nc.PublishMsg(m); err != nil {
		t.Fatal(err)
	}
	for {
		m := await(t, came, "the end of the call")
		if frame := wire.FrameOf(m.Header); frame == wire.Accept {
			continue
		}
		if f := wire.DecodeFault(m.Header, m.Data); f.Kind != "cancelled" || f.Run() != "unknown" {
			t.Errorf("got %s %s, want cancelled, unknown", f, f.Run())
		}
		break
	}
	if got := await(t, w.said, "the cancel to arrive"); got != "cancelled" {
		t.Errorf("the server heard %q, want a cancel", got)
	}
}

func TestTheListChanges(t *testing.T) {
	for _, how := range []string{"good", "legacy"} {
		d := newDesk(t, program(how))
		await(t, d.ask("learn", "t/c/1", "{}"), "the answer")
		for found := false; !found; {
			await(t, d.bridge.Changed(), "the new list")
			if err := d.worker.SetTools(d.bridge.Tools()); err != nil {
				t.Fatal(err)
			}
			_, err := d.nc.Request("tb.v1.call.text", nil, 10*time.Second)
			found = err == nats.ErrNoResponders // it was removed last
		}
		m, err := d.nc.Request("tb.v1.call.learned", []byte("{}"), 10*time.Second)
		if err != nil || string(m.Data) != `"new"` {
			t.Errorf("%s: the new tool said %v, %v", how, m, err)
		}
	}
}
