package journal_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/journal"
	"github.com/toolbus/toolbus/wire"
)

// The configuration that we ship lets an executor do all that a journal does, with the streams in another account.
func TestDeployed(t *testing.T) {
	b, err := os.ReadFile("../deploy/nats/toolbus.conf")
	if err != nil {
		t.Fatal(err)
	}
	conf := regexp.MustCompile(`(?m)^listen: .*$`).ReplaceAllLiteralString(string(b), `listen: "127.0.0.1:-1"`)
	conf = regexp.MustCompile(`(?m)store_dir: .*$`).ReplaceAllLiteralString(conf, `store_dir: "`+t.TempDir()+`"`)
	for _, name := range regexp.MustCompile(`\$(TB_\w+_PASSWORD)`).FindAllStringSubmatch(conf, -1) {
		t.Setenv(name[1], "p")
	}
	s := natstest.Start(t, bus.ServerConfig{ConfigFile: file(t, conf)})
	c := natstest.Dial(t, bus.Config{URL: s.ClientURL(), User: "executor", Password: "p"})
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
