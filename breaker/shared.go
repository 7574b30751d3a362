package breaker

import (
	"fmt"
	"math"
	"time"
)

// A Shared is what all executors know of one breaker: the value of one cell of the store. It is written by
// compare-and-swap only, so that every change is a step from one value to the next, and the order of the store is the
// order of the breaker.
//
//	        Apply: outcomes                 Take: who swaps it, probes
//	closed ────────────────► open ────────────────► half_open ──► closed
//	                          ▲                         │  Settle
//	                          └─────────────────────────┘
//
// An epoch is one stay in one state, named by the revision of the value that began it: a value that begins a state cannot
// know its own revision, so it carries 0 there, and those that follow in the same state carry the number. What was
// admitted in one epoch changes nothing in another.
//
// No clock of one machine means anything on another. Times in here are lengths, and each executor measures them on its
// own clock from when it first saw the value that says so: see Seen.
//
// The records are MessagePack. A value of a later version, or one that makes no sense, is repaired by Sane: a breaker
// that nobody understands is closed, never stuck.
type Shared struct {
	V         int       `msgpack:"v"`
	State     string    `msgpack:"state"`
	First     bool      `msgpack:"first,omitempty"`     // nothing ever happened: this is epoch 0, as without a value
	Epoch     uint64    `msgpack:"epoch,omitempty"`     // 0: the revision of this very value
	Failures  int       `msgpack:"failures,omitempty"`  // in a row, that workers reported; while closed
	Suspects  []Suspect `msgpack:"suspects,omitempty"`  // who inferred failures since the last success; while closed
	Successes int       `msgpack:"successes,omitempty"` // of probes, in a row; while half-open
	Probes    []Grant   `msgpack:"probes,omitempty"`    // on their way; while half-open
	HoldMs    int64     `msgpack:"hold_ms,omitempty"`   // how long this state lasts; 0: until something happens
	Trips     int       `msgpack:"trips,omitempty"`     // opened so often without closing between
	Now       Tally     `msgpack:"now,omitempty"`       // of the current half of the window
	Last      Tally     `msgpack:"last,omitempty"`      // of the half before
	Ramp      bool      `msgpack:"ramp,omitempty"`      // it closed after having been open, and lets calls in gradually
	WaitMs    int64     `msgpack:"wait_ms,omitempty"`   // the tool asked all to wait so long
	WaitID    string    `msgpack:"wait_id,omitempty"`   // which asking this is
	Why       string    `msgpack:"why,omitempty"`
	Who       string    `msgpack:"who,omitempty"`  // who forced it; empty where nobody did
	Nonce     string    `msgpack:"nonce"`          // of this write, so that its writer knows it again
	Past      []string  `msgpack:"past,omitempty"` // the nonces of the writes before, the latest first: see Seen.Fate
}

// A Suspect is an executor that inferred failures: it got no answer, and the fault may be its own.
type Suspect struct {
	ID  string `msgpack:"id"`
	N   int    `msgpack:"n"`
	Was int    `msgpack:"was,omitempty"` // in the half of the window before, in the modes that count shares
}

// A Grant is the right to one probe.
type Grant struct {
	Holder  string `msgpack:"holder"`
	Nonce   string `msgpack:"nonce"`
	LeaseMs int64  `msgpack:"lease_ms"`
}

// A Tally counts calls of one half of a window.
type Tally struct {
	ID    int `msgpack:"id,omitempty"` // the halves are numbered
	Calls int `msgpack:"calls,omitempty"`
	Bad   int `msgpack:"bad,omitempty"`
}

// SharedVersion is the version of the record.
const SharedVersion = 1

// Bounds of a record. A value beyond them is repaired.
const (
	maxSuspects = 16
	maxProbes   = 64
	maxPast     = 8
	maxWords    = 500 // bytes of Why and Who
	day         = 24 * time.Hour
	maxHold     = 365 * day
	maxWait     = day     // as long as a worker may ask for (wire)
	maxLease    = 2 * day // longer than any call may take
)

// Sane is v with everything that makes no sense taken out, and what that was. A state that nobody knows is closed.
func (v Shared) Sane() (Shared, error) {
	var wrong error
	say := func(format string, args ...any) {
		if wrong == nil {
			wrong = fmt.Errorf("breaker record: "+format, args...)
		}
	}
	if _, ok := ParseState(v.State); !ok {
		say("state %.40q is not known: taken as closed", v.State)
		v = Shared{State: Closed.String(), Nonce: v.Nonce}
	}
	if v.V > SharedVersion {
		say("version %d is newer than ours, %d: what is new in it is not looked at", v.V, SharedVersion)
	}
	v.V = SharedVersion
	for _, n := range []struct {
		name string
		at   *int
	}{
		{"failures", &v.Failures}, {"successes", &v.Successes}, {"trips", &v.Trips},
		{"now.calls", &v.Now.Calls}, {"now.bad", &v.Now.Bad}, {"last.calls", &v.Last.Calls}, {"last.bad", &v.Last.Bad},
	} {
		if *n.at < 0 || *n.at > math.MaxInt32 {
			say("%s is %d: taken as 0", n.name, *n.at)
			*n.at = 0
		}
	}
	for _, n := range []struct {
		name string
		at   *int64
		most time.Duration
	}{{"hold_ms", &v.HoldMs, maxHold}, {"wait_ms", &v.WaitMs, maxWait}} {
		switch {
		case *n.at < 0:
			say("%s is %d: taken as over", n.name, *n.at)
			*n.at = 1 // 0 would be for ever
		case *n.at > n.most.Milliseconds():
			say("%s is %d: taken as %v", n.name, *n.at, n.most)
			*n.at = n.most.Milliseconds()
		}
	}
	if v.First && v.State != Closed.String() {
		say("nothing ever happened, and yet it is %s", v.State)
		v.First = false
	}
	if len(v.Suspects) > maxSuspects || len(v.Probes) > maxProbes {
		say("%d suspects and %d probes: cut to %d and %d", len(v.Suspects), len(v.Probes), maxSuspects, maxProbes)
		v.Suspects = v.Suspects[:min(len(v.Suspects), maxSuspects)]
		v.Probes = v.Probes[:min(len(v.Probes), maxProbes)]
	}
	v.Suspects = filter(v.Suspects, func(i int, s *Suspect) bool {
		ok := s.N >= 0 && s.N <= math.MaxInt32 && s.Was >= 0 && s.Was <= math.MaxInt32
		for _, before := range v.Suspects[:i] {
			ok = ok && before.ID != s.ID
		}
		if !ok {
			say("suspect %.40q, %d and %d times: left out", s.ID, s.N, s.Was)
		}
		return ok
	})
	v.Probes = filter(v.Probes, func(_ int, g *Grant) bool {
		if l := g.LeaseMs; l <= 0 || l > maxLease.Milliseconds() {
			say("the lease of a probe is %d ms: taken as over", l)
			g.LeaseMs = 1
		}
		return true
	})
	v.Why, v.Who, v.Past = cut(v.Why), cut(v.Who), v.Past[:min(len(v.Past), maxPast)]
	return v, wrong
}

// filter is a copy of list with those that keep, which may change them, wants.
func filter[T any](list []T, keep func(int, *T) bool) []T {
	var out []T
	for i, e := range list {
		if keep(i, &e) {
			out = append(out, e)
		}
	}
	return out
}

func cut(s string) string {
	if len(s) <= maxWords {
		return s
	}
	return s[:maxWords]
}

// ParseState is the way back from State.String.
func ParseState(s string) (State, bool) {
	for i, name := range stateNames {
		if s == name {
			return State(i), true
		}
	}
	return Closed, false
}

// state is v's, which is Sane.
func (v *Shared) state() State {
	s, _ := ParseState(v.State)
	return s
}

// ms is d in milliseconds, rounded up: 0 would be for ever, and what was asked for must not end early.
func ms(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }

// begin is a value that begins a state after v, a value that stands. Everything of the state before is gone but what is
// named here.
func (v *Shared) begin(s State, hold time.Duration, why, who, nonce string) Shared {
	return Shared{
		V: SharedVersion, State: s.String(), HoldMs: ms(min(hold, maxHold)), Trips: v.Trips,
		Why: cut(why), Who: cut(who), Nonce: nonce, Past: v.past(), WaitMs: v.WaitMs, WaitID: v.WaitID,
	}
}

// next is a value that goes on in the state of s.
func (s *Seen) next(nonce string) Shared {
	v := s.Value
	v.V, v.Epoch, v.Nonce, v.Past = SharedVersion, s.Epoch(), nonce, s.Value.past()
	return v
}

// openFor is how long it stays open when it opens for the n-th time without having closed.
func (p Policy) openFor(trips int) time.Duration {
	d := float64(p.OpenFor) * math.Pow(p.Growth, float64(max(trips-1, 0)))
	if d >= float64(p.OpenMost) {
		return p.OpenMost
	}
	return time.Duration(d)
}
