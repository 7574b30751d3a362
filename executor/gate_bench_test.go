package executor

import (
	"testing"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/registry"
)

// benchGate is a gate of an executor that shares its breakers: closed, or open for a day.
func benchGate(b *testing.B, state breaker.State) *gate {
	b.Helper()
	c := natstest.Connect(b, natstest.InProcess(b))
	bucket, err := kvstate.Open(b.Context(), c, kvstate.Config{Bucket: "TB_BREAKERS"})
	if err != nil {
		b.Fatal(err)
	}
	e, err := New(Config{Bus: c, Registry: emptyShelf{}, Breakers: bucket})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(e.gates.shut)
	g := e.gates.gate("echo", nil)
	v := breaker.Shared{V: breaker.SharedVersion, State: state.String(), Nonce: "n"}
	if state == breaker.Open {
		p := breaker.Default()
		p.OpenFor = 24 * time.Hour
		g.policy.Store(&p)
		v.HoldMs = p.OpenFor.Milliseconds()
	}
	g.seen.Store((&breaker.Seen{}).Next(time.Now(), v, 1))
	return g
}

// BenchmarkGate is what a breaker costs the call path: to be let through and to report a success, or to be refused. The
// time is an argument, as it is there.
func BenchmarkGate(b *testing.B) {
	for _, c := range []struct {
		name  string
		state breaker.State
		want  breaker.Answer
	}{{"closed", breaker.Closed, breaker.Pass}, {"open", breaker.Open, breaker.Refuse}} {
		g, now := benchGate(b, c.state), time.Now()
		call := func() breaker.Answer {
			var p pass
			answer := g.admit(now, &p)
			if answer == breaker.Pass {
				_, _ = g.report(now, &p, breaker.Report{Outcome: breaker.Success}, "turn")
			}
			return answer
		}
		b.Run(c.name+"/serial", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if call() != c.want {
					b.Fatal("the gate is not as it should be")
				}
			}
		})
		b.Run(c.name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if call() != c.want {
						b.Error("the gate is not as it should be")
						return
					}
				}
			})
		})
	}
}

// emptyShelf is a catalogue without tools.
type emptyShelf struct{}

func (emptyShelf) Tool(string) *registry.Tool { return nil }
func (emptyShelf) Nearest(string) []string    { return nil }
func (emptyShelf) Gone(string)                {}
