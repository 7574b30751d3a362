package executor_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// Answers that come in the very moment in which their turns are woken. Whatever goes off then goes off for its own turn.
func TestAnswersAtTheMomentOfTheAlarm(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		const turns, calls, ms = 200, 4, 50
		st := newStage(t, natstest.InProcess(t))
		var tools []worker.Tool
		for i := range calls {
			tools = append(tools, handler("t"+string(rune('a'+i)), func(context.Context, *worker.Call) (any, error) {
				time.Sleep(ms * time.Millisecond)
				return 1, nil
			}, timeoutMs(ms+int64(i))))
		}
		st.workWith(worker.Config{Concurrency: turns * calls}, tools...)
		for range 5 {
			var wg sync.WaitGroup
			for range turns {
				wg.Add(1)
				var turn executor.Turn
				for _, w := range tools {
					turn.Request.Calls = append(turn.Request.Calls, tool.Call{Tool: w.Manifest.ID, Args: []byte(`{}`)})
				}
				st.exec.Go(turn, func(out *wire.Outcome) {
					defer wg.Done()
					if len(out.Results) != calls {
						t.Errorf("%d results, want %d", len(out.Results), calls)
					}
				})
			}
			wg.Wait()
		}
	})
}
