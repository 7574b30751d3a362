package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/worker"
)

func settings(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "toolbus.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Every mistake is there at once, with its line where the file has one.
func TestConfigCheckFindsEveryMistake(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"keys and types", "turn_timeout: 5 minutes\nnats_ur: x\nport: many\nembedded: perhaps\njournal: {keep: 1h}\n", []string{
			":1: expected a time such as 30s or 5m, got 5 minutes",
			":2: nats_ur is not a setting",
			":3: expected a whole number, got many",
			":4: expected true or false, got perhaps",
			":5: keep is not a setting",
		}},
		{"values", "turn_timeout: 25h\nport: 99999\nreplicas: 7\nmax_in_flight: -1\nlog_level: loud\nembedded: true\nnats_url: nats://a:4222\ntool_parallel: -2\nlate: {retention: -1s}\n", []string{
			"turn_timeout: expected 0s to 24h, got 25h0m0s",
			"port: expected 1 to 65535, 0 for 4222 or -1 for any free one, got 99999",
			"replicas: expected 0 to 5, got 7",
			"max_in_flight: expected 0 or more, got -1",
			"tool_parallel: expected 0 or more, got -2",
			"late.retention: expected 0s to 8760h, got -1s",
			`log level "loud": expected debug, info, warn or error`,
			"embedded: starts a server of its own: leave out nats_url and nats_context",
		}},
		{"no YAML", "turn_timeout: [\n", []string{"toolbus.yaml: line "}},
	} {
		command("", "config", "check", settings(t, tc.text)).check(t, tc.name, cli.ExitFailed, nil, tc.want)
	}
}

// Flags go over the environment, that over the file, that over the defaults; and what is printed is a file again.
func TestConfigCheckPrintsWhatHolds(t *testing.T) {
	file := settings(t, "turn_timeout: 1m\ndrain: 5s\nprefix: file\nnats_url: nats://file:4222\n")
	t.Setenv("TOOLBUS_DRAIN", "7s")
	t.Setenv("TOOLBUS_PREFIX", "env")
	s := command("", "config", "check", file, "--prefix=flag")
	s.check(t, "config check", 0, []string{"turn_timeout: 1m0s\n", "drain: 7s\n", "prefix: flag\n", "nats_url: nats://file:4222\n", "max_in_flight: 100000\n", "log_level: info\n"}, nil)
	if again := command("", "config", "check", settings(t, s.out), "--prefix=flag"); again.out != s.out {
		t.Errorf("what config check printed reads as\n%s\nwant\n%s", again.out, s.out)
	}
	command("", "config", "check").check(t, "without a file", 0, []string{"nats_url: nats://127.0.0.1:4222\n"}, nil)
}

func TestLists(t *testing.T) {
	at := stage(t)
	s := command("", "tools", at)
	s.check(t, "tools", 0, []string{"TOOL        VERSION  EFFECT  WORKERS  DESCRIPTION\n"}, nil)
	for _, name := range []string{"calculator", "echo", "flaky", "slow"} {
		if !regexp.MustCompile(`(?m)^` + name + ` +1\.0\.0 +read +1 `).MatchString(s.out) {
			t.Errorf("tools wrote\n%s\nwant a line for %s with one worker", s.out, name)
		}
	}
	s = command("", "workers", at)
	if !regexp.MustCompile(`(?m)^[A-Z0-9]+ +0/\d+ +ready +\d+ ms ago +toolbus-go/\S+ +calculator echo flaky slow$`).MatchString(s.out) {
		t.Errorf("workers wrote\n%s\nwant a line for the worker", s.out)
	}

	var tools []registry.ToolInfo
	if s = command("", "tools", at, "--json"); json.Unmarshal([]byte(s.out), &tools) != nil || len(tools) != 4 {
		t.Errorf("tools --json wrote %s, want four tools", s.out)
	}
	var workers []registry.WorkerInfo
	if s = command("", "workers", at, "--json"); json.Unmarshal([]byte(s.out), &workers) != nil || len(workers) != 1 {
		t.Errorf("workers --json wrote %s, want one worker", s.out)
	}
}

// What may surprise of tools is for the log of who serves them, not for who lists them.
func TestListsGiveNoAdvice(t *testing.T) {
	server := natstest.Server(t)
	at := "--nats-url=" + server.ClientURL()
	employ(t, server, worker.Tool{
		Manifest: tool.Manifest{ID: "send_mail", Effect: tool.Write},
		Handler:  worker.HandlerFunc(func(context.Context, *worker.Call) (any, error) { return nil, nil }),
	})
	for _, list := range []string{"tools", "workers"} {
		if s := command("", list, at); s.code != 0 || strings.Contains(s.err, "idempotency") || !strings.Contains(s.out, "send_mail") {
			t.Errorf("%s ended with %d and wrote\n%s%s\nwant the tool, and no advice", list, s.code, s.out, s.err)
		}
	}
}

func TestNothingToList(t *testing.T) {
	at := "--nats-url=" + natstest.URL(t)
	command("", "tools", at).check(t, "tools", 0, nil, []string{"start a worker, for example with `toolworker demo`"})
	command("", "workers", at).check(t, "workers", 0, nil, []string{"start one, for example with `toolworker demo`"})
	if s := command("", "tools", at, "--json"); strings.TrimSpace(s.out) != "[]" {
		t.Errorf("tools --json wrote %q, want []", s.out)
	}
}

func TestCompletion(t *testing.T) {
	s := command("", "__complete", "call", stage(t), "")
	s.check(t, "tools to call", 0, []string{"calculator\tWorks out", "slow\t", ":4\n"}, nil)
	s = command("", "__complete", "call", "--nats-url=nats://127.0.0.1:1", "")
	s.check(t, "no NATS", 0, []string{":4\n"}, nil)
	command("", "completion", "bash").check(t, "bash", 0, []string{"__start_executor"}, nil)
}

func TestVersion(t *testing.T) {
	command("", "version").check(t, "version", 0, []string{"executor ", "go1."}, nil)
	command("", "version", "--json").check(t, "version --json", 0, []string{`"go": "go1.`}, nil)
}

// Every command has help that fits a terminal.
func TestHelp(t *testing.T) {
	for _, args := range [][]string{{}, {"dev"}, {"serve"}, {"call"}, {"tools"}, {"workers"}, {"config"}, {"config", "check"}, {"version"}} {
		s := command("", append(args, "--help")...)
		s.check(t, strings.Join(args, " ")+" --help", 0, []string{"Usage:\n"}, nil)
		for line := range strings.Lines(s.out) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > 125 {
				t.Errorf("%v --help has a line of %d columns: %s", args, n, line)
			}
		}
	}
}
