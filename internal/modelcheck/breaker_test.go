package modelcheck

import (
	"testing"
)

// These are known to be wrong. Each must be caught, or the checker sees nothing.
func TestKnownBadProtocols(t *testing.T) {
	for _, c := range []struct {
		name string
		v    variant
		want []string
	}{
		{"V0 blind GET and SET", variant{blind: true, replicas: 3, probes: 1, successes: 1, flips: 2}, []string{lostTrip, backward, tooMany}},
		{"V1 side lease that may end while the probe runs", variant{sideLease: true, early: true, replicas: 3, probes: 1, successes: 1, flips: 1}, []string{tooMany, window}},
		{"V2 side lease that outlives the probe", variant{sideLease: true, replicas: 3, probes: 1, successes: 1, flips: 1}, []string{window}},
		{"V3 the lease may end while the probe runs", variant{early: true, replicas: 3, probes: 1, successes: 1, flips: 1}, []string{tooMany}},
		{"V4 no epoch on results", variant{noFence: true, replicas: 3, probes: 1, successes: 1, flips: 1}, []string{fenced}},
		{"V6 a conflict is taken as proof", variant{naive: true, replicas: 2, probes: 1, successes: 1, flips: 1, faults: 1}, []string{twice, leaked}},
		{"V7 only the latest nonce is looked at", variant{topOnly: true, replicas: 2, probes: 2, successes: 1, flips: 1, faults: 1}, []string{twice, leaked}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newProtocol(c.v).model()
			m.Until, m.Most = c.want, 500_000
			r := Check(m)
			t.Logf("%d states", r.States)
			for _, rule := range c.want {
				trace, ok := r.Broken[rule]
				if !ok {
					t.Errorf("nothing found where %s; want a way to it", rule)
					continue
				}
				t.Logf("%d steps:%v", len(trace), trace)
			}
		})
	}
}

// The protocol that ships breaks no rule, and is never stuck.
func TestShippedProtocol(t *testing.T) {
	for _, c := range []struct {
		name string
		v    variant
		big  bool
	}{
		{"two executors, the tool falls ill twice", variant{replicas: 2, probes: 1, successes: 2, flips: 2, held: 3}, false},
		{"two executors, answers lost, crashes", variant{replicas: 2, probes: 1, successes: 1, flips: 1, faults: 1, crashes: 1}, false},
		{"two executors, two answers lost", variant{replicas: 2, probes: 1, successes: 1, flips: 1, faults: 2}, true},
		{"two executors, two probes, two successes", variant{replicas: 2, probes: 2, successes: 2, flips: 1, faults: 1}, true},
		{"three executors, a crash", variant{replicas: 3, probes: 1, successes: 1, flips: 1, crashes: 1, held: 1}, true},
		{"three executors, an answer lost", variant{replicas: 3, probes: 1, successes: 1, flips: 1, faults: 1, held: 1}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.big && (testing.Short() || raceEnabled) {
				t.Skip("large")
			}
			c.v.alike = true
			m := newProtocol(c.v).model()
			m.Most = 6_000_000
			r := Check(m)
			t.Logf("%d states, %d steps, depth %d", r.States, r.Steps, r.Depth)
			if !r.Whole {
				t.Errorf("gave up after %d states", r.States)
			}
			for rule, trace := range r.Broken {
				t.Errorf("%s:%v", rule, trace)
			}
			if r.Stuck != nil {
				t.Errorf("closed is out of reach:%v", r.Stuck)
			}
		})
	}
}
