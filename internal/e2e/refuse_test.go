//go:build unix

package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/tool"
)

// What cannot be started says who is in the way and what to do.
func TestRefusals(t *testing.T) {
	store := t.TempDir()
	first, url := dev(t, "--store-dir", store)
	port := url[strings.LastIndexByte(url, ':')+1:]
	b := newBench(t)
	manifest := b.manifest("pause", tool.Read)
	for _, tc := range []struct {
		name string
		p    func() *process
		want []string
	}{
		{"store directory in use", func() *process {
			return begin(t, nil, "", "dev", "--port", "-1", "--store-dir", store)
		}, []string{store, fmt.Sprintf("in use by process %d; stop it or pass another --store-dir", first.pid())}},
		{"store directory in use, by serve", func() *process {
			return begin(t, nil, "", "serve", "--embedded", "--port", "-1", "--store-dir", store)
		}, []string{fmt.Sprintf("in use by process %d; stop it or pass another --store-dir", first.pid())}},
		{"port in use", func() *process {
			return begin(t, nil, "", "dev", "--port", port, "--store-dir", t.TempDir())
		}, []string{"port " + port + " of 127.0.0.1 is in use", "--nats-url nats://127.0.0.1:" + port, "another --port"}},
		{"no NATS for serve", func() *process { return begin(t, nil, "nats://127.0.0.1:1", "serve") },
			[]string{"cannot connect to NATS at nats://127.0.0.1:1", `start one with "executor dev", or pass --nats-url`}},
		{"no NATS for tools", func() *process { return begin(t, nil, "nats://127.0.0.1:1", "tools") },
			[]string{"cannot connect to NATS at nats://127.0.0.1:1", `start one with "executor dev", or pass --nats-url`}},
		{"no NATS for a worker", func() *process { return b.start("nats://127.0.0.1:1", "w1", manifest) },
			[]string{"cannot connect to NATS at nats://127.0.0.1:1", `start one with "executor dev", or pass --nats-url`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := tc.p()
			if code := p.wait(patience); code != cli.ExitUnavailable {
				t.Errorf("exit code %d, want %d", code, cli.ExitUnavailable)
			}
			for _, want := range tc.want {
				if !strings.Contains(p.err.String(), want) {
					t.Errorf("it says\n%s\nwant %s", &p.err, want)
				}
			}
		})
	}
	if r := run(t, url, "call", "calculator", `{"expression":"1"}`); r.code != cli.ExitOK {
		t.Errorf("the first is not well after all that: %d\n%s", r.code, r.err)
	}

	t.Run("a store directory whose holder was killed", func(t *testing.T) {
		first.kill()
		<-first.over
		second, url := dev(t, "--store-dir", store)
		if r := run(t, url, "call", "calculator", `{"expression":"1"}`); r.code != cli.ExitOK {
			t.Errorf("call = %d\n%s", r.code, r.err)
		}
		second.stop(syscall.SIGTERM, cli.ExitOK)
	})
}
