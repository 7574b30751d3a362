package executor_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// A cast is a catalogue of tools that all workers have who are there.
type cast struct {
	mu    sync.Mutex
	tools map[string]*tool.Compiled
	there []*registry.Instance
}

func newCast(t testing.TB, tools ...tool.Manifest) *cast {
	c := &cast{tools: map[string]*tool.Compiled{}}
	for _, m := range tools {
		m.Version = "1.0.0"
		compiled, err := tool.Compile(m)
		if err != nil {
			t.Fatal(err)
		}
		c.tools[m.ID] = compiled
	}
	return c
}

func (c *cast) Tool(name string) *registry.Tool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tools[name] == nil {
		return nil
	}
	return &registry.Tool{Name: name, Compiled: c.tools[name], Workers: c.there}
}

func (c *cast) Nearest(string) []string { return nil }

func (c *cast) Gone(id string) { c.list(id, false) }

func (c *cast) list(id string, there bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.there = slices.DeleteFunc(slices.Clone(c.there), func(in *registry.Instance) bool { return in.ID == id })
	if there {
		c.there = append(c.there, &registry.Instance{ID: id})
	}
}

// A ledger is a journal that keeps everything where a test can read it, and hands some of it on to the real one.
type ledger struct {
	executor.Journal
	mu    sync.Mutex
	turns map[string][]wire.Event
	kept  map[string][]*wire.LateRecord // by <turn>/<call>
}

func (l *ledger) Write(ev *wire.Event) {
	l.mu.Lock()
	l.turns[ev.Turn] = append(l.turns[ev.Turn], *ev)
	l.mu.Unlock()
	if strings.HasSuffix(ev.Turn, "0") { // one in ten is enough for it
		l.Journal.Write(ev)
	}
}

func (l *ledger) Keep(ctx context.Context, rec *wire.LateRecord) error {
	l.mu.Lock()
	of := rec.Turn + "/" + rec.Result.Call
	l.kept[of] = append(l.kept[of], rec)
	l.mu.Unlock()
	return l.Journal.Keep(ctx, rec)
}

// An actor is a worker that does as workers do, well and badly, and writes down the truth of it. What changes is under the
// play's lock.
type actor struct {
	p  *play
	id string
	nc *nats.Conn

	subs  []*nats.Subscription // none while it is dead
	awake time.Time            // until then it is paused
	now   map[string]*deed     // by Tb-Call
}

// A deed is what an actor did with one message, by its own word.
type deed struct {
	a       *actor
	ref     string
	reply   string
	call    string // <turn>/<call>
	attempt int
	tool    string
	key     string
	args    string
	began   time.Time
	behind  bool // the actor was paused when the message came: who knows when it was sent
	how     string
	ran     bool // it had an effect
	sure    bool // the actor said that it ran to its end, or not at all
	over    bool // nothing more comes
	said    int
}

func (a *actor) enter() {
	var subs []*nats.Subscription
	for subject, queue := range map[string]string{"tb.v1.to." + a.id: "", "tb.v1.cancel.*": "", "tb.v1.call.*": wire.QueueGroup} {
		sub, err := a.nc.QueueSubscribe(subject, queue, a.hear)
		if err != nil {
			return // the play is over
		}
		subs = append(subs, sub)
	}
	_ = a.nc.Flush()
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	a.subs = subs
	a.p.cast.list(a.id, true)
}

// die is the end of all that it does. It comes back another.
func (a *actor) die() {
	back := a.p.span(100*time.Millisecond, 1500*time.Millisecond)
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	if a.subs == nil {
		return
	}
	for _, sub := range a.subs {
		_ = sub.Unsubscribe()
	}
	for _, d := range a.now {
		d.over = true
	}
	a.subs, a.now = nil, map[string]*deed{}
	time.AfterFunc(back, a.enter)
}

func (a *actor) pause(d time.Duration) {
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	a.awake = time.Now().Add(d)
}

func (a *actor) paused() time.Duration {
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	return time.Until(a.awake)
}

// doing is what it does for a Tb-Call now, or nil.
func (a *actor) doing(ref string) *deed {
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	return a.now[ref]
}

func (a *actor) hear(m *nats.Msg) {
	d := a.paused()
	behind := d > -time.Millisecond // what came meanwhile is read right after
	for ; d > 0; d = a.paused() {
		time.Sleep(d)
	}
	ref := m.Header.Get("Tb-Call")
	switch m.Header.Get("Tb-Frame") {
	case "":
		a.serve(m, behind)
	case "ping":
		running := "0"
		if a.doing(ref) != nil {
			running = "1"
		}
		a.send(m.Reply, frame("pong", "Tb-Running", running, "Tb-Worker", a.id), "")
	case "cancel":
		if d := a.doing(ref); d != nil && d.how != "late" && !a.p.one(4) {
			d.say("stopped", `{"kind":"cancelled","message":"as you wish"}`)
		}
	}
}

func (a *actor) send(to string, h nats.Header, body string) {
	_ = a.nc.PublishMsg(&nats.Msg{Subject: to, Header: h, Data: []byte(body)}) // of no avail when the play is over
}

// after does something later, and not while the actor is paused.
func (a *actor) after(d time.Duration, f func()) {
	time.AfterFunc(d, func() {
		if left := a.paused(); left > 0 {
			a.after(left, f)
			return
		}
		f()
	})
}

// say sends one frame of a deed. It is false where that is over.
func (d *deed) say(kind, body string, more ...string) bool {
	p := d.a.p
	p.mu.Lock()
	if d.over {
		p.mu.Unlock()
		return false
	}
	switch kind {
	case "result", "partial":
		if p.gave[d.call] == nil {
			p.gave[d.call] = map[string]bool{}
		}
		value := body
		if !json.Valid([]byte(body)) {
			value = fmt.Sprintf("%q", body)
		}
		p.gave[d.call][value] = true
	}
	if wire.Frame(kind).Ends() {
		d.over = true
		delete(d.a.now, d.ref)
	}
	p.mu.Unlock()
	d.a.send(d.reply, frame(kind, append(more, "Tb-Worker", d.a.id)...), body)
	return true
}

// value is one that no other deed and no other word of this one gives.
func (d *deed) value() string {
	d.a.p.mu.Lock()
	defer d.a.p.mu.Unlock()
	d.said++
	return fmt.Sprintf(`{"x":"%s by %s %d"}`, d.ref, d.a.id, d.said)
}

func (d *deed) later(after time.Duration, kind, body string, more ...string) {
	d.a.after(after, func() { d.say(kind, body, more...) })
}

// deeds are what an actor may do with a call, and how often.
var deeds = []struct {
	how   string
	often int
}{
	{"well", 90}, {"at length", 5}, {"slowly", 16}, {"never", 5}, {"forgets", 4}, {"twice", 10}, {"late", 8}, {"fails", 16}, {"other call", 7}, {"other tool", 7},
	{"invalid", 6}, {"garbage", 8}, {"refuses", 12}, {"stops", 6}, {"dies", 3}, {"pauses", 3},
}

func (p *play) deed() string {
	all := 0
	for _, d := range deeds {
		all += d.often
	}
	n := p.n(all)
	for _, d := range deeds {
		if n -= d.often; n < 0 {
			return d.how
		}
	}
	panic("unreachable")
}

func (a *actor) serve(m *nats.Msg, behind bool) {
	p := a.p
	ref, err := wire.ParseCallRef(m.Header.Get("Tb-Call"))
	limit, err2 := strconv.Atoi(m.Header.Get("Tb-Timeout-Ms"))
	name := m.Header.Get("Tb-Tool")
	if of, ok := strings.CutPrefix(m.Subject, "tb.v1.call."); ok {
		name = of
	}
	if err != nil || err2 != nil || p.cast.Tool(name) == nil {
		p.t.Errorf("a request has headers %v", m.Header)
		return
	}
	d := &deed{
		a: a, ref: m.Header.Get("Tb-Call"), reply: m.Reply, call: ref.Key(), attempt: ref.Attempt, tool: name,
		key: cmp.Or(m.Header.Get("Tb-Key"), ref.Key()), args: string(m.Data), began: time.Now(), behind: behind, how: "well",
	}
	if !p.well.Load() {
		d.how = p.deed()
	}
	p.mu.Lock()
	p.did["worker: "+d.how]++
	p.deeds[d.call] = append(p.deeds[d.call], d)
	d.ran = d.how != "refuses"
	d.sure = !d.ran
	if a.subs == nil { // it died with the message in hand
		d.over, d.how = true, "dies"
	} else {
		a.now[d.ref] = d
	}
	p.mu.Unlock()
	d.do(time.Duration(limit) * time.Millisecond)
}

// do is what the deed comes to.
func (d *deed) do(limit time.Duration) {
	p := d.a.p
	took := p.span(0, 200*time.Millisecond)
	switch d.how {
	case "at length":
		d.later(took, "result", fmt.Sprintf(`{"x":%q,"of":%s}`, strings.Repeat(d.ref, 3000), d.value())) // checked away from the reader
	case "slowly":
		d.later(took/4, "accept", "")
		d.later(took/3, "progress", `{"done":1,"total":3,"message":"so far"}`)
		d.later(took/2, "partial", d.value(), "Tb-Seq", "1")
		if p.one(3) {
			return // and that was it
		}
		d.later(took, "result", d.value())
	case "never":
	case "forgets", "dies":
		d.a.after(took, func() {
			if d.how == "dies" {
				d.a.die()
				return
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			d.over = true
			delete(d.a.now, d.ref)
		})
	case "twice":
		d.a.after(took, func() {
			if d.say("result", d.value()) {
				d.a.send(d.reply, frame("result"), `{"x":"poison: a second answer"}`)
				d.a.send(d.reply, frame("error"), `{"kind":"failed","message":"poison: a second answer"}`)
			}
		})
	case "late":
		d.later(limit+p.span(0, time.Second), "result", d.value())
	case "fails":
		kinds := fault.Kinds()
		k := kinds[p.n(len(kinds))]
		f := fault.New(k, "as it happens")
		d.mark(f.Run())
		d.later(took, "error", fmt.Sprintf(`{"kind":%q,"message":"as it happens","execution":%q,"retry_after_ms":%d}`, k, f.Run(), p.n(2)*p.n(60)))
	case "other call":
		d.later(took/2, "progress", `{}`)
		d.a.after(took/2, func() {
			d.a.send(d.reply, frame("result", "Tb-Call", "turn-x/c1/1"), `{"x":"poison: the answer to another call"}`)
		})
		d.later(took, "result", d.value(), "Tb-Call", d.ref)
	case "other tool":
		_, rest, _ := strings.Cut(strings.TrimPrefix(d.reply, "tb.v1.reply."), ".")
		d.a.after(took/2, func() {
			d.a.send("tb.v1.reply.other."+rest, frame("result"), `{"x":"poison: the answer of another tool"}`)
		})
		d.later(took, "result", d.value())
	case "invalid":
		d.mark(fault.Done)
		d.later(took, "result", `{"y":`+d.value()+`}`)
	case "garbage":
		for range 1 + p.n(4) {
			g := garbage[p.n(len(garbage))]
			d.a.after(p.span(0, took+time.Millisecond), func() { d.a.send(d.reply, g.h, g.body) })
		}
		d.later(took+time.Millisecond, "result", d.value())
	case "refuses":
		d.later(took/20, "nack", nackFull)
	case "stops":
		d.later(took, "stopped", `{"kind":"cancelled","message":"it went down"}`)
	case "pauses":
		d.a.pause(p.span(100*time.Millisecond, 1500*time.Millisecond))
		d.later(took, "result", d.value())
	default:
		d.later(took, "result", d.value())
	}
}

// mark says what the actor will say of its run.
func (d *deed) mark(x fault.Execution) {
	d.a.p.mu.Lock()
	defer d.a.p.mu.Unlock()
	d.ran = x != fault.NotStarted
	d.sure = x == fault.NotStarted || x == fault.Done
}

// garbage is frames that say nothing.
var garbage = []struct {
	h    nats.Header
	body string
}{
	{frame("dance"), "\xff\xfe"},
	{frame("progress"), "\xdd\xff\xff\xff\xff"},
	{frame("partial", "Tb-Seq", "-1"), "{"},
	{frame("accept", "Tb-Worker", "no such > worker"), "\x00"},
	{frame("progress", "Tb-Worker", "somebody-else"), strings.Repeat("[", 10_000)},
	{frame("pong", "Tb-Running", "9999999999999999999"), ""},
	{frame("event"), `{"type":"TurnEnded"}`},
	{frame("cancel"), ""},
}
