package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/internal/natstest"
)

// say runs the program and returns its exit code and what it wrote.
func say(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	o, e := newPage(), newPage()
	code = run(t.Context(), args, strings.NewReader(""), o, e)
	return code, o.String(), e.String()
}

func TestBreakersByHand(t *testing.T) {
	at := "--nats-url=" + natstest.URL(t)
	if code, out, errs := say(t, "breakers", at); code != cli.ExitOK || out != "" || !strings.Contains(errs, "no breakers yet") {
		t.Errorf("at first: %d %q %q", code, out, errs)
	}
	if code, _, errs := say(t, "breakers", "open", "echo", at); code != cli.ExitUsage || !strings.Contains(errs, "--reason") {
		t.Errorf("without a reason: %d %q, want to be asked for one", code, errs)
	}
	if code, _, errs := say(t, "breakers", "open", "a b", at, "--reason=x"); code == cli.ExitOK || !strings.Contains(errs, "tool name") {
		t.Errorf("a name that is none: %d %q", code, errs)
	}
	if code, out, errs := say(t, "breakers", "open", "echo", at, "--reason=maintenance", "--for=10m"); code != cli.ExitOK || !strings.Contains(out, "forced_open for 10m") {
		t.Errorf("open: %d %q %q", code, out, errs)
	}
	var list []breakerInfo
	code, out, errs := say(t, "breakers", at, "--json")
	if err := json.Unmarshal([]byte(out), &list); code != cli.ExitOK || err != nil {
		t.Fatalf("list: %d %q %q %v", code, out, errs, err)
	}
	if len(list) != 1 || list[0].Tool != "echo" || list[0].State != "forced_open" || list[0].HoldMs != 600_000 || list[0].Why != "maintenance" || list[0].Who == "" {
		t.Errorf("list: %+v", list)
	}
	if _, out, _ := say(t, "breakers", at); !strings.Contains(out, "forced_open") || !strings.Contains(out, "10m0s") {
		t.Errorf("table: %q", out)
	}
	if code, out, _ := say(t, "breakers", "auto", "echo", at); code != cli.ExitOK || !strings.Contains(out, "closed") {
		t.Errorf("auto: %d %q", code, out)
	}
	if _, out, _ = say(t, "breakers", at, "--json"); !strings.Contains(out, `"closed"`) {
		t.Errorf("afterwards: %q, want closed", out)
	}
}

func TestExecutorsNobody(t *testing.T) {
	at := "--nats-url=" + natstest.URL(t)
	code, out, errs := say(t, "executors", at, "--json")
	var list []executor.Presence
	if err := json.Unmarshal([]byte(out), &list); code != cli.ExitOK || err != nil || len(list) != 0 {
		t.Errorf("executors: %d %q %q %v, want an empty list", code, out, errs, err)
	}
}
