package turn

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
)

// What the transcripts are written in: steps with the time since the start, and the effects each led to.
type step struct {
	at time.Duration
	ev Event
}

const s = time.Second

func ok(attempt int) Event       { return Event{Kind: Succeeded, Attempt: attempt, Value: []byte("1")} }
func due() Event                 { return Event{Kind: Due, Budget: true} }
func accepted(attempt int) Event { return Event{Kind: Accepted, Attempt: attempt, Worker: "w1"} }
func progress(attempt int) Event { return Event{Kind: Progressed, Attempt: attempt} }
func cancel() Event              { return Event{Kind: CancelCall} }

func piece(attempt int, v string) Event {
	return Event{Kind: Pieced, Attempt: attempt, Value: []byte(v)}
}

func fails(attempt int, k fault.Kind) Event {
	return Event{Kind: Failed, Attempt: attempt, Fault: fault.New(k, "it broke"), Budget: true}
}

func stoppedBy(attempt int) Event {
	f := fault.New(fault.Cancelled, "stopped")
	f.Execution = fault.Stopped
	return Event{Kind: Failed, Attempt: attempt, Fault: f, Budget: true}
}

// plain is a plan without jitter, so that transcripts can be read.
func plain(change ...func(*Plan)) Plan {
	p := retry.Default()
	p.JitterPercent = 0
	plan := Plan{Call: "c", Tool: "echo", Timeout: 30 * s, Grace: s / 4, Policy: &p, Effect: tool.Read}
	for _, f := range change {
		f(&plan)
	}
	return plan
}

func deadline(d time.Duration) func(*Plan) { return func(p *Plan) { p.Deadline = start.Add(d) } }
func timeout(d time.Duration) func(*Plan)  { return func(p *Plan) { p.Timeout = d } }
func idle(d time.Duration) func(*Plan)     { return func(p *Plan) { p.Idle = d } }
func effect(e tool.Effect) func(*Plan)     { return func(p *Plan) { p.Effect = e } }
func keepsKeys(p *Plan)                    { p.KeepsKeys = true }

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestTranscripts(t *testing.T) {
	for _, tc := range []struct {
		name  string
		plan  Plan
		steps []step
		want  string
	}{
		{"an answer", plain(), []step{{s, ok(1)}}, `
			+0s send #1; +0s wake +30s
			+1s finish success`},
		{"retries wait 100, 200, 400 and 800 ms, and the fifth failure is the last", plain(), []step{
			{0, fails(1, fault.Upstream)}, {ms100, due()}, {ms100, fails(2, fault.Upstream)}, {3 * ms100, due()},
			{3 * ms100, fails(3, fault.Upstream)}, {7 * ms100, due()}, {7 * ms100, fails(4, fault.Upstream)},
			{15 * ms100, due()}, {15 * ms100, fails(5, fault.Upstream)},
		}, `
			+0s send #1; +0s wake +30s
			+0s errored #1 upstream: retry; +0s wake +100ms
			+100ms send #2; +100ms wake +30.1s
			+100ms errored #2 upstream: retry; +100ms wake +300ms
			+300ms send #3; +300ms wake +30.3s
			+300ms errored #3 upstream: retry; +300ms wake +700ms
			+700ms send #4; +700ms wake +30.7s
			+700ms errored #4 upstream: retry; +700ms wake +1.5s
			+1.5s send #5; +1.5s wake +31.5s
			+1.5s errored #5 upstream: fail; +1.5s finish failed upstream`},
		{"an early wake changes nothing", plain(), []step{{s, due()}, {2 * s, ok(1)}}, `
			+0s send #1; +0s wake +30s
			+1s wake +30s
			+2s finish success`},
		{"a permanent fault ends it", plain(), []step{{s, fails(1, fault.Denied)}}, `
			+0s send #1; +0s wake +30s
			+1s errored #1 denied: fail; +1s finish failed denied`},
		{"a timeout waits for the stop, then tries again", plain(), []step{{30 * s, due()}, {30*s + ms100, stoppedBy(1)}, {30*s + 2*ms100, due()}, {31 * s, ok(2)}}, `
			+0s send #1; +0s wake +30s
			+30s stop #1; +30s wake +30.25s
			+30.1s errored #1 timeout: retry; +30.1s wake +30.2s
			+30.2s send #2; +30.2s wake +1m0.2s
			+31s finish success`},
		{"a stop that nobody confirms is given up after the grace", plain(timeout(s)), []step{{s, due()}, {s + s/4, due()}, {s + s/4 + ms100, due()}, {2 * s, ok(2)}}, `
			+0s send #1; +0s wake +1s
			+1s stop #1; +1s wake +1.25s
			+1.25s errored #1 timeout: retry; +1.25s wake +1.35s
			+1.35s send #2; +1.35s wake +2.35s
			+2s finish success`},
		{"an answer within the grace is an answer", plain(timeout(s)), []step{{s, due()}, {s + ms100, ok(1)}}, `
			+0s send #1; +0s wake +1s
			+1s stop #1; +1s wake +1.25s
			+1.1s finish success`},
		{"an attempt that was given up says nothing more", plain(timeout(s)), []step{{s, due()}, {s + s/4, due()}, {s + s/4 + ms100, due()}, {s + s/2, ok(1)}, {2 * s, ok(2)}}, `
			+0s send #1; +0s wake +1s
			+1s stop #1; +1s wake +1.25s
			+1.25s errored #1 timeout: retry; +1.25s wake +1.35s
			+1.35s send #2; +1.35s wake +2.35s
			+1.5s
			+2s finish success`},
		{"progress resets the idle clock, not the total one", plain(timeout(3*s), idle(2*s)), []step{
			{2*s - ms100, progress(1)}, {2 * s, due()}, {3 * s, due()}, {3*s + ms100, stoppedBy(1)}, {10 * s, cancel()},
		}, `
			+0s send #1; +0s wake +2s
			+1.9s
			+2s wake +3s
			+3s stop #1; +3s wake +3.25s
			+3.1s errored #1 timeout: retry; +3.1s wake +3.2s
			+10s finish cancelled cancelled`},
		{"pieces make a timeout a partial result when nothing is left to try", plain(timeout(s), func(p *Plan) { p.Policy.MaxAttempts = 1 }), []step{
			{s / 2, piece(1, `{"a":1}`)}, {s / 2, piece(1, `2`)}, {s, due()}, {s + s/4, due()},
		}, `
			+0s send #1; +0s wake +1s
			+500ms
			+500ms
			+1s stop #1; +1s wake +1.25s
			+1.25s errored #1 partial: accept_partial; +1.25s finish partial partial [{"a":1},2]`},
		{"the deadline ends the turn and lets the call run on", plain(deadline(10 * s)), []step{{10 * s, due()}, {11 * s, ok(1)}}, `
			+0s send #1; +0s wake +10s
			+10s finish timed_out deadline
			+11s`},
		{"no retry is begun that does not fit before the deadline", plain(deadline(s)), []step{{s - ms100/2, fails(1, fault.Upstream)}}, `
			+0s send #1; +0s wake +1s
			+950ms errored #1 upstream: fail; +950ms finish failed upstream`},
		{"a cancel is confirmed by the worker", plain(), []step{{s, cancel()}, {s + ms100, stoppedBy(1)}}, `
			+0s send #1; +0s wake +30s
			+1s stop #1; +1s wake +1.25s
			+1.1s errored #1 cancelled: fail; +1.1s finish cancelled cancelled`},
		{"a cancel while it waits", plain(), []step{{0, fails(1, fault.Upstream)}, {ms100 / 2, cancel()}, {ms100, due()}}, `
			+0s send #1; +0s wake +30s
			+0s errored #1 upstream: retry; +0s wake +100ms
			+50ms finish cancelled cancelled
			+100ms`},
		{"two lost workers are enough", plain(), []step{{s, accepted(1)}, {s, fails(1, fault.WorkerLost)}, {s + ms100, due()}, {2 * s, fails(2, fault.WorkerLost)}}, `
			+0s send #1; +0s wake +30s
			+1s
			+1s errored #1 worker_lost: retry; +1s wake +1.1s
			+1.1s send #2; +1.1s wake +31.1s
			+2s errored #2 worker_lost: fail; +2s finish failed worker_lost`},
		{"a write that may have run is not run again", plain(effect(tool.Write)), []step{{s, fails(1, fault.WorkerLost)}}, `
			+0s send #1; +0s wake +30s
			+1s errored #1 worker_lost: fail; +1s finish failed worker_lost`},
		{"a write that did not run is", plain(effect(tool.Write)), []step{{0, fails(1, fault.Unavailable)}, {ms100, due()}, {s, ok(2)}}, `
			+0s send #1; +0s wake +30s
			+0s errored #1 unavailable: retry; +0s wake +100ms
			+100ms send #2; +100ms wake +30.1s
			+1s finish success`},
		{"a write whose worker keeps keys is", plain(effect(tool.Write), keepsKeys), []step{{s, fails(1, fault.WorkerLost)}, {s + ms100, due()}, {2 * s, ok(2)}}, `
			+0s send #1; +0s wake +30s
			+1s errored #1 worker_lost: retry; +1s wake +1.1s
			+1.1s send #2; +1.1s wake +31.1s
			+2s finish success`},
		{"two answers", plain(), []step{{s, ok(1)}, {s, ok(1)}}, `
			+0s send #1; +0s wake +30s
			+1s finish success
			+1s`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := play(tc.plan, tc.steps)
			if want := trim(tc.want); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

const ms100 = 100 * time.Millisecond

func play(p Plan, steps []step) string {
	var b strings.Builder
	var t Turn
	write(&b, 0, t.Start(start, p))
	for _, st := range steps {
		write(&b, st.at, t.Step(start.Add(st.at), st.ev))
	}
	return strings.TrimSpace(b.String())
}

func write(b *strings.Builder, at time.Duration, effects []Effect) {
	if len(effects) == 0 {
		fmt.Fprintf(b, "+%v\n", at)
		return
	}
	parts := make([]string, 0, len(effects))
	for _, e := range effects {
		parts = append(parts, fmt.Sprintf("+%v %s", at, text(e)))
	}
	b.WriteString(strings.Join(parts, "; ") + "\n")
}

func text(e Effect) string {
	switch e.Kind {
	case Send:
		return fmt.Sprintf("send #%d", e.Attempt)
	case Stop:
		return fmt.Sprintf("stop #%d", e.Attempt)
	case Wake:
		return fmt.Sprintf("wake +%v", e.At.Sub(start))
	case Errored:
		return fmt.Sprintf("errored #%d %s: %s", e.Attempt, e.Fault.Kind, e.Decision.Action)
	case Finish:
		parts := []string{"finish", string(e.Result.Status)}
		if e.Result.Fault != nil {
			parts = append(parts, string(e.Result.Fault.Kind))
		}
		if e.Result.Status == tool.PartialValue {
			parts = append(parts, string(e.Result.Value))
		}
		return strings.Join(parts, " ")
	}
	return fmt.Sprintf("effect %d", e.Kind)
}

func trim(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.Join(lines, "\n")
}

// Whatever comes in whatever order, a turn finishes at most once, and its timer always leads to an end.
func TestEveryTurnEndsOnce(t *testing.T) {
	kinds := fault.Kinds()
	for seed := range 2000 {
		rnd := uint64(seed)*0x9e3779b97f4a7c15 + 1
		next := func(n int) int { rnd ^= rnd << 13; rnd ^= rnd >> 7; rnd ^= rnd << 17; return int(rnd % uint64(n)) }
		plan := plain(timeout(time.Duration(next(3)+1)*s), deadline(time.Duration(next(20)+1)*s))
		if next(2) == 0 {
			plan.Idle = s / 2
		}
		var tn Turn
		now, wake, finished := start, time.Time{}, 0
		take := func(effects []Effect) {
			for _, e := range effects {
				switch e.Kind {
				case Wake:
					wake = e.At
				case Finish:
					finished++
				}
			}
		}
		take(tn.Start(now, plan))
		for i := 0; finished == 0 && i < 10_000; i++ {
			now = now.Add(time.Duration(next(300)) * time.Millisecond)
			if !now.Before(wake) { // a timer is on time
				now = wake
				take(tn.Step(now, due()))
				continue
			}
			attempt := max(1, tn.Attempt()-next(2))
			switch next(6) {
			case 0:
				take(tn.Step(now, Event{Kind: Failed, Attempt: attempt, Fault: fault.New(kinds[next(len(kinds))], "x"), Budget: next(3) > 0}))
			case 1:
				take(tn.Step(now, piece(attempt, "1")))
			case 2:
				take(tn.Step(now, accepted(attempt)))
			default:
				take(tn.Step(now, due())) // early
			}
		}
		take(tn.Step(now, ok(tn.Attempt())))
		take(tn.Step(now, cancel()))
		if finished != 1 {
			t.Fatalf("seed %d: finished %d times, want once", seed, finished)
		}
		if late := now.Sub(plan.Deadline); late > 0 {
			t.Fatalf("seed %d: ended %v after its deadline", seed, late)
		}
	}
}
