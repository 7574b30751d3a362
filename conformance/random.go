package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

// Of the random program.
const (
	atOnce      = concurrency     // actions under way. Tools that ignore a cancel keep their place, so there is a nack now and then
	slack       = 3 * time.Second // for a busy machine, beyond a call's time and the grace
	maxProblems = 20              // that are told
)

// A RandomReport is what came of Random.
type RandomReport struct {
	Command    []string       `json:"command"`
	Level      Level          `json:"level"`
	Seed       uint64         `json:"seed"` // the same one makes the same list of actions
	Actions    map[string]int `json:"actions"`
	Nacks      int            `json:"nacks"` // calls that the worker had no room for
	Lives      int            `json:"lives"` // how often the worker was started
	Problems   []string       `json:"problems,omitempty"`
	Stderr     string         `json:"stderr,omitempty"` // of the worker, where there is a problem
	DurationMs int64          `json:"duration_ms"`
}

// An action is one thing that the random program does.
type action struct {
	name    string
	tool    string
	args    string
	key     string
	timeout time.Duration // of the call
	cancel  time.Duration // after which it is cancelled; negative: not
	value   string        // the result it must have; empty: not looked at
	ends    []wire.Frame  // how it may end, beside a nack
	kind    fault.Kind    // of the fault, where it has one; empty: any
	pieces  int
}

// Random plays a seeded list of actions to the worker for d, several at once: calls that go well, fail, stall, stream, are
// cancelled, ignore that, or come again; and the worker is killed now and then. What always holds must hold: one end for
// each attempt, within its time, and nothing after it; frames of their own call; pieces without a hole; nothing on foreign
// subjects. The error is about what is not the worker's. Levels below Full leave out what such workers cannot do.
func Random(ctx context.Context, cfg Config, seed uint64, d time.Duration) (RandomReport, error) {
	if err := cfg.check(); err != nil {
		return RandomReport{}, err
	}
	begun := time.Now()
	l, err := newLane(&cfg)
	if err != nil {
		return RandomReport{}, err
	}
	defer l.close()
	r := &random{
		l:      l,
		dice:   rand.New(rand.NewPCG(seed, seed)),
		end:    begun.Add(d),
		report: RandomReport{Command: cfg.Command, Level: cfg.Level, Seed: seed, Actions: map[string]int{}},
	}
	for time.Now().Before(r.end) && ctx.Err() == nil && err == nil {
		err = r.life(ctx)
	}
	r.report.DurationMs = time.Since(begun).Milliseconds()
	return r.report, errors.Join(err, ctx.Err())
}

// A random is the program under way.
type random struct {
	l    *lane
	dice *rand.Rand // only of the goroutine that draws
	end  time.Time
	n    int // actions until now

	mu     sync.Mutex
	report RandomReport
}

func (r *random) problem(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.report.Problems) < maxProblems {
		r.report.Problems = append(r.report.Problems, fmt.Sprintf(format, args...))
	}
}

// life is one worker from its start to its end, by the time or by a kill in the middle of what it does.
func (r *random) life(ctx context.Context) error {
	h, err := r.l.open(ctx, prefix)
	if err != nil {
		return err
	}
	defer h.close()
	r.report.Lives++
	known := len(r.report.Problems)
	dead := make(chan struct{})
	room := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	var boxes []*inbox
	counted := &counts{by: map[string]string{}}
	killed := false

	for time.Now().Before(r.end) && ctx.Err() == nil && !killed {
		room <- struct{}{}
		a := r.draw()
		r.n++
		r.report.Actions[a.name]++
		if r.l.cfg.Verbose != nil {
			fmt.Fprintf(r.l.cfg.Verbose, "#%d %s %s %s\n", r.n, a.name, a.tool, short(a.args))
		}
		if a.name == "die" {
			killed = true
			h.process.kill()
			close(dead)
			break
		}
		if h.process.ended() {
			r.problem("#%d %s: the worker ended by itself: %v", r.n, a.name, h.process.cmd.ProcessState)
			close(dead)
			killed = true
			break
		}
		name := fmt.Sprintf("#%d %s", r.n, a.name)
		b, err := h.inbox(name, "")
		if err != nil {
			return err
		}
		boxes = append(boxes, b)
		n := r.n
		all.Go(func() {
			defer func() { <-room }()
			r.act(h, b, a, n, counted, dead)
		})
	}
	all.Wait()
	if !killed {
		h.barrier()
	}
	for _, b := range boxes {
		for _, why := range b.wrong(h.worker) {
			r.problem("%s", why)
		}
	}
	for _, subject := range h.strangers() {
		r.problem("the worker published to %s, where it has no business", subject)
	}
	if len(r.report.Problems) > known {
		r.report.Stderr = h.process.stderr.since(0)
	}
	return nil
}

// act does one action and looks at how it ends.
func (r *random) act(h *house, b *inbox, a action, n int, counted *counts, dead <-chan struct{}) {
	b.call = true
	b.ref = fmt.Sprintf("r%d/a%d/1", r.report.Seed, n)
	header := wire.Header{
		wire.HeaderCall:    {b.ref},
		wire.HeaderTimeout: {strconv.FormatInt(a.timeout.Milliseconds(), 10)},
	}
	if a.key != "" {
		header[wire.HeaderKey] = []string{a.key}
	}
	subject := h.subjects.Call(a.tool)
	if h.worker != "" && n%2 == 0 {
		subject, header[wire.HeaderTool] = h.subjects.To(h.worker), []string{a.tool}
	}
	if err := h.publish(subject, b.subject, header, []byte(a.args)); err != nil {
		r.problem("%s: %v", b.name, err)
		return
	}
	if a.cancel >= 0 {
		time.Sleep(a.cancel) // part of the action
		stop := wire.Header{wire.HeaderFrame: {string(wire.Cancel)}, wire.HeaderCall: {b.ref}}
		if err := h.publish(h.subjects.To(h.worker), "", stop, nil); err != nil {
			r.problem("%s: %v", b.name, err)
			return
		}
	}

	pieces := 0
	end := time.Now().Add(a.timeout + wire.CancelGrace + slack)
	for {
		f, ok := b.next(min(time.Until(end), 100*time.Millisecond), false)
		switch {
		case ok && f.kind == wire.Partial:
			pieces++
		case ok && f.ends():
			r.judge(b, a, f, pieces, counted, dead)
			return
		case !ok && over(dead):
			return // its end died with the worker
		case !ok && time.Now().After(end):
			r.problem("%s: it has no end after %v: %s %s", b.name, time.Since(b.sent).Round(time.Millisecond), a.tool, a.args)
			return
		}
	}
}

func over(dead <-chan struct{}) bool {
	select {
	case <-dead:
		return true
	default:
		return false
	}
}

// judge looks at the end of an action.
func (r *random) judge(b *inbox, a action, f frame, pieces int, counted *counts, dead <-chan struct{}) {
	if f.kind == none {
		if !over(dead) {
			r.problem("%s: nobody listens, and the worker lives", b.name)
		}
		return
	}
	v, err := f.value()
	if err != nil {
		r.problem("%s: came %s: %v", b.name, f, err)
		return
	}
	m := matcher{exact: true, vars: map[string]string{}}
	if f.kind == wire.Nack {
		r.mu.Lock()
		r.report.Nacks++
		r.mu.Unlock()
		m.exact = false
		if !m.like(map[string]any{"kind": "overloaded", "execution": "not_started"}, v) {
			r.problem("%s: came %s, and a worker says no only where it is full", b.name, f)
		}
		return
	}
	allowed := false
	for _, kind := range a.ends {
		allowed = allowed || kind == f.kind
	}
	if !allowed {
		r.problem("%s: came %s, want %v: %s", b.name, f, a.ends, a.args)
		return
	}
	if f.kind == wire.Result {
		if want, err := decode([]byte(a.value)); err == nil && !m.like(want, v) {
			r.problem("%s: came %s, want %s", b.name, f, short(a.value))
		}
		if pieces != a.pieces {
			r.problem("%s: %d pieces came, want %d", b.name, pieces, a.pieces)
		}
		if before := counted.same(a.key, show(v)); before != "" {
			r.problem("%s: key %s got %s, and %s before", b.name, a.key, show(v), before)
		}
		return
	}
	if got, _ := v.(map[string]any)["kind"].(string); a.kind != "" && got != string(a.kind) {
		r.problem("%s: came %s, want %s", b.name, f, a.kind)
	}
}

// counts are the answers by key.
type counts struct {
	mu sync.Mutex
	by map[string]string
}

// same is the answer that the key got before, where that was another one.
func (c *counts) same(key, answer string) string {
	if key == "" {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, ok := c.by[key]; ok && before != answer {
		return before
	}
	c.by[key] = answer
	return ""
}

// draw is the next action. It takes the same number from the dice wherever it is called, so the list is the seed's.
func (r *random) draw() action {
	kind, n, text := r.dice.IntN(100), r.dice.IntN(100), r.dice.IntN(len(texts))
	a := action{name: "succeed", timeout: 10 * time.Second, cancel: -1, ends: []wire.Frame{wire.Result}}
	a.tool, a.args = "conf_echo", fmt.Sprintf(`{"n":%d,"text":%s}`, n, texts[text])
	a.value = a.args
	level := r.l.cfg.Level
	switch {
	case kind < 25:
	case kind < 32:
		a.tool, a.args = "conf_size", `{"data":"`+strings.Repeat("é", n*n)+`"}`
		a.value = fmt.Sprintf(`{"bytes":%d}`, 2*n*n)
	case !level.includes(Standard):
	case kind < 47:
		kinds := fault.Kinds()
		a.name, a.tool, a.kind = "fail", "conf_fail", kinds[n%len(kinds)]
		a.args = fmt.Sprintf(`{"kind":%q,"message":"drawn"}`, a.kind)
		a.ends = []wire.Frame{wire.ErrorFrame}
	case kind < 51:
		a.name, a.tool, a.args, a.ends = "crash", "conf_crash", "{}", []wire.Frame{wire.ErrorFrame}
	case kind < 56:
		a.name, a.tool, a.args, a.kind = "mistake", "conf_add", fmt.Sprintf(`{"a":%d}`, n), fault.InvalidArguments
		a.ends = []wire.Frame{wire.ErrorFrame}
	case kind < 63:
		a.name, a.tool, a.args, a.kind = "stall", "conf_sleep", `{"ms":20000,"progress_every_ms":20}`, fault.Timeout
		a.timeout, a.ends = time.Duration(50+2*n)*time.Millisecond, []wire.Frame{wire.ErrorFrame}
	case kind < 75:
		a.name, a.tool, a.args, a.kind = "cancel", "conf_sleep", `{"ms":20000}`, fault.Cancelled
		a.cancel, a.ends = time.Duration(n)*time.Millisecond, []wire.Frame{wire.Stopped, wire.ErrorFrame}
	case !level.includes(Full):
	case kind < 85:
		a.name, a.tool, a.pieces, a.args = "stream", "conf_stream", n, fmt.Sprintf(`{"pieces":%d}`, n)
		a.value = a.args
	case kind < 93:
		a.name, a.tool, a.key = "repeat", "conf_count", fmt.Sprint("key-", n%20)
		a.args, a.value = fmt.Sprintf(`{"n":%d}`, n%20), ""
	case kind < 96:
		a.name, a.tool, a.args = "ignore", "conf_sleep", `{"ms":500,"ignore_cancel":true}`
		a.timeout, a.ends = 100*time.Millisecond, []wire.Frame{wire.ErrorFrame}
	case n < 15:
		a.name = "die"
	}
	return a
}

// texts are JSON strings.
var texts = func() []string {
	var all []string
	for _, s := range []string{"", "plain", "Grüße 世界 🦊", "a\x00b\n\t\"\\", strings.Repeat("x", 5000), "<&>\u2028"} {
		b, err := json.Marshal(s)
		if err != nil {
			panic(err)
		}
		all = append(all, string(b))
	}
	return all
}()
