package breaker

import (
	"testing"
	"time"
)

func BenchmarkSeen(b *testing.B) {
	p, now := Default(), time.Now()
	seen := func(v Shared) *Seen { return (&Seen{}).Next(now, v, 7) }
	for _, c := range []struct {
		name string
		s    *Seen
	}{
		{"closed", seen(Shared{State: "closed"})},
		{"ramp", seen(Shared{State: "closed", Ramp: true})},
		{"wait", seen(Shared{State: "closed", WaitMs: 1e6, WaitID: "w"})},
		{"open", seen(Shared{State: "open", HoldMs: 30_000})},
		{"half_open", seen(Shared{State: "half_open", Probes: []Grant{{Nonce: "n", LeaseMs: 60_000}}})},
	} {
		admit := func(b *testing.B) bool { return c.s.Settled() || c.s.Admit(now, p, 0.5) == Pass }
		if n := testing.AllocsPerRun(100, func() { admit(b) }); n != 0 {
			b.Errorf("%s: %v allocations, want none", c.name, n)
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				admit(b)
			}
		})
		b.Run(c.name+"/parallel", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					admit(b)
				}
			})
		})
	}
}

func TestAdmitDoesNotAllocate(t *testing.T) {
	p := Default()
	for _, state := range stateNames {
		s := (&Seen{}).Next(noon, Shared{State: state, HoldMs: 1, Probes: []Grant{{Nonce: "n", LeaseMs: 1}}}, 7)
		if n := testing.AllocsPerRun(10, func() { s.Admit(noon, p, 0.5) }); n != 0 {
			t.Errorf("%s: %v allocations, want none", state, n)
		}
	}
}
