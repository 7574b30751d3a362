package bus_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/natstest"
)

func TestConnectRefused(t *testing.T) {
	open := natstest.URL(t)
	locked := configured(t, `authorization { user: a, password: secret }`).ClientURL()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	pem := file(t, "not.pem", "nothing")
	for _, tt := range []struct {
		name string
		cfg  bus.Config
		want []string
	}{
		{"nobody there", bus.Config{URL: "nats://127.0.0.1:1"},
			[]string{"nats://127.0.0.1:1", "tried once", `"executor dev"`, "--nats-url"}},
		{"nobody there, secret", bus.Config{URL: "nats://joe:hunter2@127.0.0.1:1,127.0.0.1:2"},
			[]string{"nats://***@127.0.0.1:1,nats://127.0.0.1:2"}},
		{"bad port, secret", bus.Config{URL: "nats://joe:hunter2@host:port"}, []string{"nats://***@host:port", "invalid port"}},
		{"bad escape, secret", bus.Config{URL: "nats://joe:hunter2%zz@host"}, []string{"nats://***@host"}},
		{"scheme", bus.Config{URL: "http://host"}, []string{`scheme "http"`, "nats, tls"}},
		{"port", bus.Config{URL: "nats://a:hunter2@host:70000"}, []string{"nats://***@host:70000", "port 70000: expected 1 to 65535"}},
		{"no host", bus.Config{URL: "nats://:4222"}, []string{"no host"}},
		{"wrong password", bus.Config{URL: locked, User: "a", Password: "hunter2"}, []string{"refused the credentials", "--creds"}},
		{"no credentials", bus.Config{URL: locked}, []string{"refused the credentials"}},
		{"two ways", bus.Config{URL: open, User: "a", Token: "hunter2"}, []string{"user and token", "give one"}},
		{"password alone", bus.Config{URL: open, Password: "hunter2"}, []string{"without a user"}},
		{"no creds file", bus.Config{URL: open, Creds: "/no/such.creds"}, []string{"creds file", "/no/such.creds"}},
		{"bad creds", bus.Config{URL: open, Creds: file(t, "bad.creds", "hunter2")}, []string{"bad.creds", "expected the JWT"}},
		{"no nkey file", bus.Config{URL: open, NKey: "/no/such.nk"}, []string{"nkey file", "/no/such.nk"}},
		{"bad nkey", bus.Config{URL: open, NKey: file(t, "bad.nk", "SUhunter2")}, []string{"bad.nk", "begins with SU"}},
		{"no CA", bus.Config{URL: open, TLSCA: "/no/ca.pem"}, []string{"TLS CA file", "/no/ca.pem"}},
		{"bad CA", bus.Config{URL: open, TLSCA: pem}, []string{"TLS CA file", "found none"}},
		{"half a pair", bus.Config{URL: open, TLSCert: pem}, []string{"give both or neither"}},
		{"no key", bus.Config{URL: open, TLSCert: pem, TLSKey: "/no/key.pem"}, []string{"TLS key", "/no/key.pem"}},
		{"bad pair", bus.Config{URL: open, TLSCert: pem, TLSKey: pem}, []string{"TLS certificate", "not.pem"}},
		{"TLS to a plain server", bus.Config{URL: strings.Replace(open, "nats:", "tls:", 1)}, []string{"TLS"}},
		{"no context", bus.Config{Context: "nowhere"}, []string{`unknown context "nowhere"`, "nats context ls"}},
		{"id", bus.Config{URL: open, ID: "a.b"}, []string{"instance id", "a.b"}},
		{"inbox", bus.Config{URL: open, InboxName: "a.>"}, []string{"inbox name", "a.>"}},
		{"prefix", bus.Config{URL: open, Prefix: "a b"}, []string{"subject prefix", "a b"}},
		{"replicas", bus.Config{URL: open, Replicas: 7}, []string{"replicas = 7"}},
	} {
		c, err := bus.Connect(t.Context(), tt.cfg)
		if err == nil {
			c.Close()
			t.Errorf("%s: connected", tt.name)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q, want %q in it", tt.name, err, want)
			}
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows a secret: %s", tt.name, err)
		}
	}
}

func TestConnectIsBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // says nothing to anybody
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	url := "nats://" + l.Addr().String()

	_, err = bus.Connect(t.Context(), bus.Config{URL: url + "," + url, Timeout: 50 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "50ms at most") {
		t.Errorf("Connect to a mute server = %v, want an error with the timeout", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = bus.Connect(ctx, bus.Config{URL: url, Timeout: 200 * time.Millisecond}); !errors.Is(err, context.Canceled) {
		t.Errorf("Connect with a cancelled context = %v", err)
	}
}

func TestConnectWithNKeyAndContext(t *testing.T) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := pair.PublicKey()
	seed, _ := pair.Seed()
	s := configured(t, `authorization { users: [ { nkey: `+public+` } ] }`)
	path := file(t, "user.nk", string(seed))
	natstest.Dial(t, bus.Config{URL: s.ClientURL(), NKey: path})

	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	dir := filepath.Join(home, "nats", "context")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	text := `{"url": "nats://127.0.0.1:1", "nkey": "` + path + `", "inbox_prefix": "_INBOX_mine", "jetstream_domain": "hub"}`
	if err := os.WriteFile(filepath.Join(dir, "prod.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := natstest.Dial(t, bus.Config{Context: "prod", URL: s.ClientURL()}) // the URL here goes before the context's
	if inbox := c.NATS().NewInbox(); !strings.HasPrefix(inbox, "_INBOX_mine.") {
		t.Errorf("inbox = %s, want the context's prefix", inbox)
	}
	if d := c.JetStream().Options().Domain; d != "hub" {
		t.Errorf("JetStream domain = %q, want hub", d)
	}
}

func TestConnDefaults(t *testing.T) {
	s := natstest.Server(t)
	c := natstest.Dial(t, bus.Config{Server: s, Prefix: "acme"})
	if got, want := c.Subjects().Call("x"), "acme.v1.call.x"; got != want {
		t.Errorf("call subject = %s, want %s", got, want)
	}
	if got, want := c.NATS().NewInbox(), "_INBOX_"+c.ID()+"."; !strings.HasPrefix(got, want) {
		t.Errorf("inbox = %s, want prefix %s", got, want)
	}
	if got, want := c.Inline(), 1<<20-64<<10; got != want {
		t.Errorf("Inline() = %d, want %d", got, want)
	}
	if got := c.Replicas(); got != 1 {
		t.Errorf("Replicas() = %d, want 1", got)
	}
}
