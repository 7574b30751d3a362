package executor

import (
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/kvstate"
)

type callFunc func(pass, bool) bool

func (f callFunc) let(p pass, ok bool) bool { return f(p, ok) }

// The probe that closes the breaker has ended, and that is being written while others come: nobody is refused.
func TestNobodyIsRefusedAfterTheLastProbe(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := natstest.Connect(t, natstest.InProcess(t))
		p := breaker.Default()
		p.FailureThreshold, p.SuccessThreshold = 1, 1
		for range 500 {
			gs := newGates(kvstate.NewMemory().Line(), c, slog.New(slog.DiscardHandler))
			gs.away.Store(false)
			g := gs.gate("x", &p)
			var first pass
			if a := g.enter(time.Now(), &first, nil); a != breaker.Pass {
				t.Fatalf("enter, at first = %v, want Pass", a)
			}
			g.report(time.Now(), &first, breaker.Report{Outcome: breaker.Failure}, "turn")
			time.Sleep(p.OpenFor)
			granted := make(chan pass, 1)
			if a := g.enter(time.Now(), &first, callFunc(func(p pass, ok bool) bool { granted <- p; return ok })); a != breaker.Ask {
				t.Fatalf("enter, when it was open for its time = %v, want Ask", a)
			}
			probe := <-granted
			synctest.Wait()
			g.report(time.Now(), &probe, breaker.Report{Outcome: breaker.Success}, "turn")
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for range 50 {
						var p pass
						if a := g.enter(time.Now(), &p, callFunc(func(_ pass, ok bool) bool {
							if !ok {
								t.Error("done(false), want true")
							}
							return ok
						})); a == breaker.Refuse {
							t.Error("enter = Refuse, want Pass or Ask")
						}
					}
				})
			}
			wg.Wait()
			gs.shut()
		}
	})
}
