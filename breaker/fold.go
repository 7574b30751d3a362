package breaker

import (
	"fmt"
	"time"
)

// A Report is one outcome as the executor knows it.
type Report struct {
	Outcome  Outcome
	Inferred bool          // nobody said so: silence, or our own connection
	Took     time.Duration // of the attempt, for SlowCalls
	Wait     time.Duration // what the tool asked for (retry-after); 0: nothing
}

// A Fold is what an executor has to say of one breaker since its last write: many outcomes in a few numbers, so that one
// write carries them all. The zero Fold has nothing to say. It speaks of one epoch; outcomes of another are dropped.
type Fold struct {
	Epoch    uint64
	success  bool // there was one: what failed before it, here or elsewhere, was not in a row
	lead     int  // failures that workers reported, before the first success: they go on from what stands in the store
	failures int  // after the last success; the same as lead where there was none
	inferred int  // failures that nobody reported, after the last success
	best     int  // the longest row of reported ones, here alone
	need     int  // how many open it
	calls    int  // for the modes that count shares
	bad      int
	wait     time.Duration
	waitID   string
}

// Add takes one report in that was admitted under seen.
func (f *Fold) Add(s *Seen, p Policy, r Report, waitID string) {
	if f.Epoch != s.Epoch() {
		*f = Fold{Epoch: s.Epoch(), wait: f.wait, waitID: f.waitID}
	}
	if r.Wait > f.wait {
		f.wait, f.waitID = r.Wait, waitID
	}
	p = p.orDefault()
	f.need = p.FailureThreshold
	if p.Mode != Consecutive {
		f.share(p, r)
		return
	}
	switch {
	case r.Outcome == Success:
		f.success, f.failures, f.inferred = true, 0, 0
	case r.Outcome == Failure && r.Inferred:
		f.inferred++
	case r.Outcome == Failure:
		f.failures++
		f.best = max(f.best, f.failures)
		if !f.success {
			f.lead++
		}
	}
}

func (f *Fold) share(p Policy, r Report) {
	if r.Outcome == Neutral {
		return
	}
	f.calls++
	switch {
	case r.Outcome == Failure && r.Inferred: // however long it took: silence may be our own
		f.inferred++
	case r.Outcome == Failure, p.Mode == SlowCalls && r.Took >= p.Slow:
		f.bad++
	}
}

// Then is f with what came after it.
func (f Fold) Then(g Fold) Fold {
	wait, id := f.wait, f.waitID
	if g.wait > wait {
		wait, id = g.wait, g.waitID
	}
	switch {
	case f.Epoch != g.Epoch && g.empty():
		g = f
	case f.Epoch == g.Epoch:
		g.best = max(g.best, f.best, f.failures+g.lead)
		if f.success {
			g.lead = f.lead
		} else {
			g.lead += f.failures
		}
		if !g.success {
			g.failures, g.inferred = g.failures+f.failures, g.inferred+f.inferred
		}
		g.success, g.need = g.success || f.success, max(g.need, f.need)
		g.calls, g.bad = g.calls+f.calls, g.bad+f.bad
	}
	g.wait, g.waitID = wait, id
	return g
}

// Unsure is what of f to say again where nobody can find out whether it was said: failures, since to count one twice is a
// smaller evil than to miss it, but no success, which would take back the failures of others that came after it.
func (f Fold) Unsure() Fold {
	f.success, f.lead, f.best, f.calls, f.bad = false, f.failures, f.failures, 0, 0
	return f
}

func (f Fold) empty() bool {
	return !f.success && f.failures == 0 && f.inferred == 0 && f.calls == 0
}

// Says reports whether there is something to write while seen stands: a success with nothing to reset is nothing.
func (f *Fold) Says(s *Seen) bool {
	if f.wait > 0 {
		return true
	}
	if f.Epoch != s.Epoch() || s.State() != Closed {
		return false
	}
	if f.row(s) || f.failures > 0 || f.inferred > 0 || f.calls > 0 {
		return true
	}
	return f.success && !s.Clean()
}

// row says that there are as many failures in a row as open it, whatever came after them.
func (f *Fold) row(s *Seen) bool { return f.best > 0 && max(f.best, s.Value.Failures+f.lead) >= f.need }

// Urgent reports whether the fold should be written now rather than with the next ones. A success is as urgent as a
// failure: while it waited, failures of others would count as in a row that were not.
func (f *Fold) Urgent() bool { return f.success || f.best > 0 || f.inferred > 0 || f.wait > 0 }

// Apply is the value that follows seen once the fold is in it. Me is the executor, live how many executors there are,
// nonce names the write. It is false where the fold changes nothing.
func (s *Seen) Apply(now time.Time, p Policy, f Fold, me string, live int, nonce string) (Shared, Transition, bool) {
	p = p.orDefault()
	v, changed := s.next(nonce), false
	if s.Rev == 0 {
		v.State, v.First = Closed.String(), true
	}
	if f.wait > 0 && f.wait > s.waiting(now) {
		v.WaitMs, v.WaitID, changed = ms(min(f.wait, maxWait)), f.waitID, true
	} else if v.WaitMs > 0 && s.waiting(now) == 0 {
		v.WaitMs, v.WaitID = 0, "" // over; not worth a write of its own
	}
	if f.Epoch != s.Epoch() || s.State() != Closed {
		return v, Transition{}, changed
	}
	f.need = p.FailureThreshold
	row := f.row(s)
	if f.success && !s.Clean() {
		v.Failures, v.Suspects, changed = 0, nil, true
	}
	if f.failures > 0 || f.inferred > 0 || f.calls > 0 || row {
		changed = true
	}
	v.Failures += f.failures
	v.tally(now, p, s, f)
	v.Suspects = suspect(v.Suspects, me, f.inferred)

	why, open := v.tripped(p, live)
	if row && p.Mode == Consecutive {
		why, open = inARow(max(f.best, s.Value.Failures+f.lead), "failure"), true
	}
	if !open {
		return v, Transition{}, changed
	}
	v.Trips++
	n := v.begin(Open, p.openFor(v.Trips), why, "", nonce)
	n.Past = v.Past
	return n, Transition{From: Closed, To: Open, Why: why}, true
}

func suspect(list []Suspect, me string, n int) []Suspect {
	if n == 0 {
		return list
	}
	out := append([]Suspect(nil), list...)
	for i := range out {
		if out[i].ID == me {
			out[i].N += n
			return out
		}
	}
	if len(out) == maxSuspects {
		return out
	}
	return append(out, Suspect{ID: me, N: n})
}

// tally adds to the window. It has two halves; who writes when the current one is old begins another.
func (v *Shared) tally(now time.Time, p Policy, s *Seen, f Fold) {
	if p.Mode == Consecutive {
		return
	}
	if age := now.Sub(s.halfAt); !s.halfAt.IsZero() && age >= p.Window/2 {
		v.Last = v.Now
		if age >= p.Window {
			v.Last = Tally{}
		}
		v.Now = Tally{ID: v.Now.ID + 1}
		v.Suspects = filter(v.Suspects, func(_ int, s *Suspect) bool {
			s.Was, s.N = s.N, 0
			return s.Was > 0 && age < p.Window
		})
	}
	v.Now.Calls += f.calls
	v.Now.Bad += f.bad
}

// tripped says whether the value is one that opens, and why.
func (v *Shared) tripped(p Policy, live int) (string, bool) {
	need := min(p.MinReporters, maxSuspects)
	if need <= 0 {
		need = 2
	}
	need = max(1, min(need, live))
	quorum := len(v.Suspects) >= need
	inferred := 0
	for _, s := range v.Suspects {
		if p.Mode != Consecutive {
			inferred += s.N + s.Was
			continue
		}
		inferred += min(s.N, (p.FailureThreshold+need-1)/need) // however many one infers, it is one voice among those needed
	}
	switch {
	case p.Mode != Consecutive:
		calls, bad := v.Now.Calls+v.Last.Calls, v.Now.Bad+v.Last.Bad
		if quorum {
			bad += inferred
		}
		if calls >= p.MinCalls && float64(bad) >= p.Rate*float64(calls) && bad > 0 {
			return fmt.Sprintf("%d of %d calls were bad", bad, calls), true
		}
	case v.Failures >= p.FailureThreshold:
		return inARow(v.Failures, "failure"), true
	case quorum && v.Failures+inferred >= p.FailureThreshold:
		who := "1 executor"
		if n := len(v.Suspects); n > 1 {
			who = fmt.Sprintf("%d executors", n)
		}
		return inARow(v.Failures+inferred, "failure") + ", as " + who + " found", true
	}
	return "", false
}
