package bus

import (
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"nats://localhost:4222":               "nats://localhost:4222",
		"localhost":                           "nats://localhost",
		"nats://user:pass@h1,tls://token@h2":  "nats://***@h1,tls://***@h2",
		"user:p@ss@host":                      "nats://***@host",
		" nats://a:b@h1:1 , h2":               "nats://***@h1:1,nats://h2",
		"nats://user:pa ss%zz@host:port/path": "nats://***@host:port/path",
	} {
		if got := redact(in); got != want {
			t.Errorf("redact(%q) = %q, want %q", in, got, want)
		}
	}
}

// FuzzSubject: what passes cannot break the protocol's lines, nor the connection's limit on them.
func FuzzSubject(f *testing.F) {
	for _, s := range []string{"tb.v1.call.x", "", ".", "a..b", "a b", "a\r\nPUB b 0", "$JS.API.INFO", "é", strings.Repeat("a", 600)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if checkSubject(s) != nil {
			return
		}
		if len(s) > 512 || strings.ContainsAny(s, " \t\r\n\x00*>") || strings.Contains("."+s+".", "..") {
			t.Errorf("checkSubject(%q) = nil", s)
		}
	})
}
