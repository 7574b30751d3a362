package journal_test

import (
	"strings"
	"testing"

	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/journal"
	"github.com/toolbus/toolbus/wire"
)

// The configuration that we ship lets an executor do all that a journal does, with the streams in another account.
func TestDeployed(t *testing.T) {
	c := natstest.As(t, natstest.Deployed(t, "../deploy/nats/toolbus.conf"), "executor", "")
	if err := c.EnsureTopology(t.Context()); err != nil {
		t.Fatal(err)
	}
	j := begin(t, journal.Config{Bus: c})
	begin(t, journal.Config{Bus: c}) // looks at the streams

	const n = 600 // more than one batch
	for seq := range int64(n) {
		j.Write(event("t", wire.LateResult, seq+1))
	}
	for k, ev := range events(t, j, "t", n) {
		if ev.Seq != int64(k+1) {
			t.Fatalf("event %d = #%d, want #%d", k, ev.Seq, k+1)
		}
	}
	large := `"` + strings.Repeat("x", 2<<20) + `"`
	for call, value := range map[string]string{"small": "1", "large": large} {
		if err := j.Keep(t.Context(), record("t", call, value)); err != nil {
			t.Fatal(err)
		}
		if r, f := j.Late(t.Context(), wire.LateQuery{Call: call}); f != nil || string(r.Result.Value) != value {
			t.Errorf("Late(%s): %v, want its value", call, f)
		}
	}
}
