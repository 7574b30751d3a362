package recovery

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
)

const ms = time.Millisecond

// A row is one decision. The situation is the first of five attempts that failed with that fault, of a required call that
// has nothing to fall back on, as changed.
type row struct {
	name    string
	kind    fault.Kind
	change  func(*Situation)
	action  Action
	because string // the whole of it
}

func decide(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			s := situation(r.kind)
			if r.change != nil {
				r.change(&s)
			}
			d := Decide(s)
			if d.Action != r.action || d.Because != r.because {
				t.Errorf("Decide = %s because %q\n       want %s because %q", d.Action, d.Because, r.action, r.because)
			}
			if want := s.Alternative; d.Tool != "" && (d.Action != Alternative || d.Tool != want) {
				t.Errorf("Decide = %s with tool %q", d.Action, d.Tool)
			}
		})
	}
}

func situation(kind fault.Kind) Situation {
	policy := retry.Default()
	policy.JitterPercent = 0
	f := fault.New(kind, "it broke")
	f.Tool = "hotel_search"
	return Situation{Fault: f, Verdict: fault.Overrides{}.Judge(f), Policy: policy, Attempt: 1, Remaining: retry.NoDeadline, Budget: true}
}

// exhausted has no attempts left.
func exhausted(s *Situation) { s.Attempt = 5 }

// spare has an alternative.
func spare(s *Situation) { s.Alternative = "hotel_cache" }

func all(changes ...func(*Situation)) func(*Situation) {
	return func(s *Situation) {
		for _, change := range changes {
			change(s)
		}
	}
}

func overridden(o fault.Override) func(*Situation) {
	return func(s *Situation) {
		s.Verdict = fault.Overrides{Kinds: map[fault.Kind]fault.Override{s.Fault.Kind: o}}.Judge(s.Fault)
	}
}

func effect(e tool.Effect) func(*Situation) { return func(s *Situation) { s.Effect = e } }

// §1: a permanent fault is not sent again.
func TestSeed000_1_Classification(t *testing.T) {
	decide(t, []row{
		{"transient", fault.Timeout, nil, Retry, "timeout is transient, and the tool declares no effect"},
		{"permanent", fault.InvalidArguments, nil, Escalate, "invalid_arguments is permanent; nothing else is left to try"},
		{"the manifest makes it permanent", fault.Upstream, overridden(fault.Override{Class: fault.Permanent}), Escalate,
			"the manifest says upstream is permanent; nothing else is left to try"},
		{"the manifest makes it transient", fault.NotFound, overridden(fault.Override{Class: fault.Transient}), Retry,
			"not_found is transient, and the tool declares no effect"},
	})
}

// §2.3: attempts, then time.
func TestSeed000_2_3_RetryDecision(t *testing.T) {
	decide(t, []row{
		{"it did not run", fault.Unavailable, nil, Retry, "it did not run"},
		{"a read may run twice", fault.Timeout, effect(tool.Read), Retry, "it is read: it may run twice"},
		{"so may what is idempotent", fault.Timeout, effect(tool.Idempotent), Retry, "it is idempotent: it may run twice"},
		{"a write may not", fault.Timeout, effect(tool.Write), Escalate, "it may have run, and running a write twice may do it twice; nothing else is left to try"},
		{"a write that did not run may", fault.Unavailable, effect(tool.Write), Retry, "it did not run"},
		{"a write with keys may", fault.Timeout, func(s *Situation) { s.Effect, s.KeepsKeys = tool.Write, true }, Retry, "its worker keeps idempotency keys: it does not run twice"},
		{"a write that was stopped in the middle may not", fault.Timeout, func(s *Situation) { s.Effect = tool.Write; s.Fault.Execution = fault.Stopped }, Escalate,
			"it may have run, and running a write twice may do it twice; nothing else is left to try"},
		{"attempts used up", fault.Upstream, exhausted, Escalate, "all 5 attempts are used up; nothing else is left to try"},
		{"time used up", fault.Upstream, func(s *Situation) { s.SinceFailure = 1950 * ms }, Escalate,
			"the retry time of 2s is used up: 1.95s since the first failure, and the next wait is 100ms; nothing else is left to try"},
		{"the wait does not fit", fault.Upstream, func(s *Situation) { s.Remaining = 50 * ms }, Escalate,
			"the wait of 100ms does not fit: 50ms are left before the deadline; nothing else is left to try"},
		{"no budget", fault.Upstream, func(s *Situation) { s.Budget = false }, Escalate, retry.BudgetSpent + "; nothing else is left to try"},
		{"no retry, says the manifest", fault.Upstream, overridden(fault.Override{Retry: new(bool)}), Escalate,
			"the manifest says upstream is not retried; nothing else is left to try"},
		{"poison", fault.WorkerLost, func(s *Situation) { s.Effect, s.Deaths = tool.Read, 2 }, Escalate,
			"2 workers were lost under it: it is not sent again; nothing else is left to try"},
	})

	s := situation(fault.RateLimited)
	s.Fault.RetryAfterMs = 700
	if d := Decide(s); d.Action != Retry || d.After != 700*ms {
		t.Errorf("Decide(retry after 700 ms) = %s after %v, want retry after 700ms", d.Action, d.After)
	}
	if d := Decide(situation(fault.Upstream)); d.After != 100*ms {
		t.Errorf("Decide(first failure) = %s after %v, want retry after 100ms", d.Action, d.After)
	}
}

// §3.3 and §3.4: an open circuit ends the retries, a half-open one allows one.
func TestSeed000_3_4_CircuitBreaker(t *testing.T) {
	in := func(state breaker.State) func(*Situation) { return func(s *Situation) { s.Circuit = state } }
	decide(t, []row{
		{"closed", fault.Unavailable, in(breaker.Closed), Retry, "it did not run"},
		{"open", fault.Unavailable, in(breaker.Open), Escalate, "its circuit breaker is open; nothing else is left to try"},
		{"half-open", fault.Unavailable, in(breaker.HalfOpen), Retry, "it did not run"},
		{"forced open", fault.Unavailable, in(breaker.ForcedOpen), Escalate, "its circuit breaker is forced open; nothing else is left to try"},
		{"forced closed", fault.Unavailable, in(breaker.ForcedClosed), Retry, "it did not run"},
		{"disabled", fault.Unavailable, in(breaker.Disabled), Retry, "it did not run"},
		{"open, and an alternative", fault.Unavailable, all(spare, in(breaker.Open)), Alternative, "its circuit breaker is open; hotel_cache is tried instead"},
		{"refused by the circuit", fault.CircuitOpen, in(breaker.Open), Escalate, "its circuit breaker is open; nothing else is left to try"},
		{"refused by the circuit, which has changed since", fault.CircuitOpen, in(breaker.HalfOpen), Escalate, "its circuit breaker is open; nothing else is left to try"},
		{"refused by the circuit, and an alternative", fault.CircuitOpen, all(spare, in(breaker.ForcedOpen)), Alternative, "its circuit breaker is forced open; hotel_cache is tried instead"},
		{"permanent comes first", fault.Denied, in(breaker.Open), Escalate, "denied is permanent; nothing else is left to try"},
	})
}

// §4.2: after the deadline nothing starts, and what came before it is kept.
func TestSeed000_4_2_Deadline(t *testing.T) {
	late := func(s *Situation) { s.Remaining = 0 }
	everything := func(s *Situation) { s.Alternative, s.HasDefault, s.Optional = "hotel_cache", true, true }
	pieces := func(s *Situation) { s.Pieces = true }
	decide(t, []row{
		{"the deadline", fault.Deadline, everything, Fail, "the turn's deadline has passed"},
		{"the deadline, and pieces", fault.Deadline, all(everything, pieces), AcceptPartial, "the turn's deadline has passed; the pieces that came are kept"},
		{"cancelled", fault.Cancelled, all(everything, pieces), Fail, "the caller cancelled it"},
		{"cancelled by another", fault.Cancelled, func(s *Situation) { s.Cancelled = "the turn's client is gone" }, Fail, "the turn's client is gone"},
		{"no retry", fault.Unavailable, late, Escalate, "no time is left before the deadline; nothing else is left to try"},
		{"no alternative", fault.Unavailable, all(spare, late), Escalate,
			"no time is left before the deadline; hotel_cache is not tried: it could not begin before the deadline; nothing else is left to try"},
		{"but the default", fault.Unavailable, all(everything, late), UseDefault,
			"no time is left before the deadline; hotel_cache is not tried: it could not begin before the deadline; its default is used"},
		{"an alternative where the wait does not fit", fault.Unavailable, func(s *Situation) { spare(s); s.Remaining = 50 * ms }, Alternative,
			"the wait of 100ms does not fit: 50ms are left before the deadline; hotel_cache is tried instead"},
	})
}

// §5.1: what there is instead of a result.
func TestSeed000_5_1_OptionalAndDefault(t *testing.T) {
	decide(t, []row{
		{"optional", fault.NotFound, func(s *Situation) { s.Optional = true }, Skip, "not_found is permanent; it is optional: the turn goes on without it"},
		{"default", fault.NotFound, func(s *Situation) { s.HasDefault = true }, UseDefault, "not_found is permanent; its default is used"},
		{"a default comes before skipping", fault.NotFound, func(s *Situation) { s.HasDefault, s.Optional = true, true }, UseDefault, "not_found is permanent; its default is used"},
		{"pieces come before a default", fault.Partial, func(s *Situation) { exhausted(s); s.Pieces, s.HasDefault = true, true }, AcceptPartial,
			"all 5 attempts are used up; the pieces that came are kept"},
		{"an alternative comes before pieces", fault.Partial, func(s *Situation) { exhausted(s); spare(s); s.Pieces = true }, Alternative,
			"all 5 attempts are used up; hotel_cache is tried instead"},
		{"a retry comes before all", fault.Unavailable, func(s *Situation) { spare(s); s.Pieces, s.HasDefault, s.Optional = true, true, true }, Retry, "it did not run"},
		{"required", fault.NotFound, nil, Escalate, "not_found is permanent; nothing else is left to try"},
	})
}

// §6.1: an alternative, if available and if it may help.
func TestSeed000_6_1_Alternative(t *testing.T) {
	on := func(words ...string) func(*Situation) { return func(s *Situation) { s.FallbackOn = words } }
	fallen := func(s *Situation) { s.Fallen = true }
	ran := func(e fault.Execution) func(*Situation) { return func(s *Situation) { s.Ran = e } }
	const twice = "hotel_cache is not tried: the call may have run, and an alternative may do it a second time; nothing else is left to try"
	decide(t, []row{
		{"retries come first", fault.Timeout, all(spare, effect(tool.Read)), Retry, "it is read: it may run twice"},
		{"after the last attempt", fault.Timeout, all(spare, exhausted), Alternative, "all 5 attempts are used up; hotel_cache is tried instead"},
		{"without budget", fault.Upstream, func(s *Situation) { spare(s); s.Budget = false }, Alternative, retry.BudgetSpent + "; hotel_cache is tried instead"},
		{"overloaded for want of budget", fault.Overloaded, all(spare, exhausted), Alternative, "all 5 attempts are used up; hotel_cache is tried instead"},
		{"no such tool", fault.ToolNotFound, spare, Alternative, "tool_not_found is permanent; hotel_cache is tried instead"},
		{"nobody there, which the manifest calls permanent", fault.Unavailable, all(spare, overridden(fault.Override{Class: fault.Permanent})), Alternative,
			"the manifest says unavailable is permanent; hotel_cache is tried instead"},
		{"a transient fault that is not retried", fault.Upstream, all(spare, overridden(fault.Override{Retry: new(bool)})), Alternative,
			"the manifest says upstream is not retried; hotel_cache is tried instead"},

		{"permanent", fault.NotFound, spare, Escalate, "not_found is permanent; hotel_cache is not tried: fallback_on does not name not_found; nothing else is left to try"},
		{"permanent, another is named", fault.NotFound, all(spare, on("denied")), Escalate,
			"not_found is permanent; hotel_cache is not tried: fallback_on does not name not_found; nothing else is left to try"},
		{"permanent, and named", fault.NotFound, all(spare, on("denied", "not_found")), Alternative, "not_found is permanent; hotel_cache is tried instead"},
		{"permanent, and all are named", fault.InvalidArguments, all(spare, on("permanent")), Alternative, "invalid_arguments is permanent; hotel_cache is tried instead"},
		{"named, and none is left", fault.NotFound, on("permanent"), Escalate, "not_found is permanent; nothing else is left to try"},

		{"an alternative that refused its arguments", fault.InvalidArguments, all(spare, fallen), Alternative, "invalid_arguments is permanent; hotel_cache is tried instead"},
		{"an alternative that does not exist", fault.ToolNotFound, all(spare, fallen), Alternative, "tool_not_found is permanent; hotel_cache is tried instead"},
		{"an alternative that ran", fault.NotFound, all(spare, fallen), Escalate,
			"not_found is permanent; hotel_cache is not tried: fallback_on does not name not_found; nothing else is left to try"},

		{"poison", fault.WorkerLost, func(s *Situation) { spare(s); s.Deaths = 2 }, Escalate,
			"2 workers were lost under it: it is not sent again; hotel_cache is not tried: the arguments may be what kills; nothing else is left to try"},
		{"one death is not poison", fault.WorkerLost, func(s *Situation) { spare(s); exhausted(s); s.Deaths = 1 }, Alternative,
			"all 5 attempts are used up; hotel_cache is tried instead"},

		{"a write of which nobody knows", fault.Timeout, all(spare, effect(tool.Write)), Escalate, "it may have run, and running a write twice may do it twice; " + twice},
		{"a write with keys, of which nobody knows", fault.Timeout, all(spare, exhausted, effect(tool.Write), func(s *Situation) { s.KeepsKeys = true }), Escalate,
			"all 5 attempts are used up; " + twice},
		{"a write that may have run before", fault.Unavailable, all(spare, exhausted, effect(tool.Write), ran(fault.Unknown)), Escalate, "all 5 attempts are used up; " + twice},
		{"a write that was stopped before", fault.Unavailable, all(spare, exhausted, effect(tool.Write), ran(fault.Stopped)), Escalate, "all 5 attempts are used up; " + twice},
		{"a write that did not run", fault.Unavailable, all(spare, exhausted, effect(tool.Write), ran(fault.NotStarted)), Alternative, "all 5 attempts are used up; hotel_cache is tried instead"},
		{"a write that ran and failed", fault.Failed, all(spare, on("failed"), effect(tool.Write), ran(fault.Done)), Alternative, "failed is permanent; hotel_cache is tried instead"},
		{"a read of which nobody knows", fault.Timeout, all(spare, exhausted, effect(tool.Read), ran(fault.Unknown)), Alternative, "all 5 attempts are used up; hotel_cache is tried instead"},
	})
}

// Whatever the situation.
func TestDecideAlways(t *testing.T) {
	actions := []Action{Retry, Alternative, AcceptPartial, UseDefault, Skip, Escalate, Fail}
	runs := []fault.Execution{"", fault.NotStarted, fault.Unknown, fault.Stopped, fault.Done}
	kinds := append(fault.Kinds(), "from_a_newer_peer")
	var words []string
	for _, k := range kinds {
		words = append(words, string(k))
	}
	words = append(words, tool.AnyPermanent)

	rapid.Check(t, func(t *rapid.T) {
		f := fault.New(rapid.SampledFrom(kinds).Draw(t, "kind"), "it broke")
		f.Execution = rapid.SampledFrom(runs).Draw(t, "run")
		f.RetryAfterMs = rapid.Int64Range(-10, 5000).Draw(t, "retry after")
		var o fault.Overrides
		if rapid.Bool().Draw(t, "overridden") {
			o.Kinds = map[fault.Kind]fault.Override{f.Kind: {
				Class: rapid.SampledFrom([]fault.Class{"", fault.Transient, fault.Permanent}).Draw(t, "class"),
				Retry: rapid.Ptr(rapid.Bool(), true).Draw(t, "retry"),
			}}
		}
		s := Situation{
			Fault: f, Verdict: o.Judge(f),
			Circuit:      breaker.State(rapid.IntRange(0, 6).Draw(t, "circuit")),
			Effect:       rapid.SampledFrom([]tool.Effect{tool.Undeclared, tool.Read, tool.Idempotent, tool.Write}).Draw(t, "effect"),
			KeepsKeys:    rapid.Bool().Draw(t, "keys"),
			Ran:          rapid.SampledFrom(runs).Draw(t, "ran"),
			Policy:       retry.Default(),
			Attempt:      rapid.IntRange(0, 6).Draw(t, "attempt"),
			Roll:         rapid.Float64Range(0, 1).Draw(t, "roll"),
			SinceFailure: time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "since")),
			Remaining:    rapid.SampledFrom([]time.Duration{-1, 0, 1, time.Second, retry.NoDeadline}).Draw(t, "remaining"),
			Deaths:       rapid.IntRange(0, 3).Draw(t, "deaths"),
			Budget:       rapid.Bool().Draw(t, "budget"),
			Alternative:  rapid.SampledFrom([]string{"", "hotel_cache"}).Draw(t, "alternative"),
			Fallen:       rapid.Bool().Draw(t, "fallen"),
			FallbackOn:   rapid.SliceOfN(rapid.SampledFrom(words), 0, 3).Draw(t, "fallback_on"),
			Pieces:       rapid.Bool().Draw(t, "pieces"),
			HasDefault:   rapid.Bool().Draw(t, "default"),
			Optional:     rapid.Bool().Draw(t, "optional"),
		}
		d := Decide(s)
		unsure := func(e fault.Execution) bool { return e == fault.Unknown || e == fault.Stopped }
		over := f.Kind == fault.Cancelled || f.Kind == fault.Deadline
		sends := d.Action == Retry || d.Action == Alternative
		must := func(ok bool, rule string) {
			if !ok {
				t.Errorf("%s, but Decide = %+v", rule, d)
			}
		}
		must(slices.Contains(actions, d.Action), "an action is one of those there are")
		must(strings.TrimSpace(d.Because) != "", "every decision says why")
		must((d.Tool != "") == (d.Action == Alternative), "an alternative names its tool, and nothing else does")
		must(d.After == 0 || d.Action == Retry, "only a retry waits")
		must(d.After >= 0, "a wait is not negative")
		must(!sends || s.Remaining > 0, "nothing starts after the deadline")
		must(!sends || s.Remaining == retry.NoDeadline || d.After < s.Remaining, "a wait fits before the deadline")
		must(!sends || s.Deaths < 2, "poison is not sent again")
		must(!sends || !over, "what is over is not sent again")
		must(d.Action != Fail || over, "only what is over fails")
		must(d.Action != Retry || s.Verdict.Retry != fault.Never, "what is never retried is not")
		must(d.Action != Retry || s.Effect != tool.Write || s.KeepsKeys || !unsure(f.Run()), "a write that may have run does not run again")
		must(d.Action != Retry || s.Attempt < 5 && s.Budget && s.Circuit != breaker.Open && s.Circuit != breaker.ForcedOpen, "a retry needs an attempt, a budget and a circuit")
		must(d.Action != Alternative || s.Effect != tool.Write || !unsure(f.Run()) && !unsure(s.Ran), "a write that may have run is not done by another tool")
		must(d.Action != AcceptPartial || s.Pieces, "pieces are accepted where there are some")
		must(d.Action != UseDefault || s.HasDefault && !s.Pieces, "a default is used where there is one, and no pieces")
		must(d.Action != Skip || s.Optional && !s.HasDefault, "what is optional is skipped")
		must(d.Action != Escalate || !s.Optional && !s.HasDefault && !s.Pieces, "a call escalates where there is nothing else")
		must(d == Decide(s), "the same situation has the same decision")
	})
}
