package journal

import (
	"strings"
	"testing"

	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// What is held in memory is counted, whatever field it stands in.
func TestWeigh(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	many := make([]string, 1000)
	for name, ev := range map[string]*wire.Event{
		"progress": {Progress: &wire.ProgressRecord{Message: long}},
		"because":  {Because: long},
		"args":     {Request: &wire.TurnRequest{Calls: []tool.Call{{Args: []byte(long)}}}},
		"after":    {Request: &wire.TurnRequest{Calls: []tool.Call{{After: many}}}},
		"value":    {Result: &tool.Result{Value: []byte(long)}},
	} {
		if n := weigh(ev); n < 10_000 {
			t.Errorf("weigh(an event with a long %s) = %d, want 10,000 at least", name, n)
		}
	}
}
