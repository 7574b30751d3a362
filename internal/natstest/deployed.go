package natstest

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
)

// Deployed starts a server with the configuration that we ship, which is at path, but for its port and directory. Each
// entry of without, such as "executor: tb.v1.hb.*", takes a permission from a user: one that somebody forgot.
func Deployed(t *testing.T, path string, without ...string) *bus.Server {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	conf := string(b)
	replace := func(expr, with string) {
		re := regexp.MustCompile("(?m)" + expr)
		if n := len(re.FindAllString(conf, -1)); n != 1 {
			t.Fatalf("%s: %q is there %d times, want once", path, expr, n)
		}
		conf = re.ReplaceAllLiteralString(conf, with)
	}
	replace(`^listen: .*$`, `listen: "127.0.0.1:-1"`)
	replace(`store_dir: .*$`, `store_dir: "`+t.TempDir()+`"`)
	for _, entry := range without {
		user, subject, _ := strings.Cut(entry, ": ")
		_, rest, ok := strings.Cut(conf, "user: "+user+"\n")
		if !ok || !strings.Contains(rest, `"`+subject+`"`) {
			t.Fatalf("%s: no user %s who may %s", path, user, subject)
		}
		conf = strings.TrimSuffix(conf, rest) + strings.Replace(rest, `"`+subject+`"`, "", 1)
	}
	for _, user := range []string{"EXECUTOR", "FLIGHT_SEARCH", "CLIENT", "OBSERVER", "ADMIN"} {
		t.Setenv("TB_"+user+"_PASSWORD", "p-"+strings.ToLower(user))
	}
	mine := filepath.Join(t.TempDir(), "toolbus.conf")
	if err := os.WriteFile(mine, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	return Start(t, bus.ServerConfig{ConfigFile: mine})
}

// As connects to a server of Deployed as one of its users. An empty id is a random one.
func As(t testing.TB, s *bus.Server, user, id string) *bus.Conn {
	t.Helper()
	return Dial(t, bus.Config{URL: s.ClientURL(), User: user, Password: "p-" + user, ID: id})
}

// Bare is As without our own code.
func Bare(t testing.TB, s *bus.Server, user string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(user, "p-"+user), nats.CustomInboxPrefix("_INBOX_"+user),
		nats.PermissionErrOnSubscribe(true), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	t.Cleanup(func() { nc.Close(); <-closed })
	return nc
}

// Allowed are the lines of list that the server allows a user: "pub SUBJECT", "sub SUBJECT" or "sub SUBJECT QUEUE".
func Allowed(t testing.TB, s *bus.Server, user, list string) (allowed []string) {
	t.Helper()
	nc := Bare(t, s, user)
	for line := range strings.Lines(strings.TrimSpace(list)) {
		w := append(strings.Fields(line), "")
		before := nc.LastError()
		var err error
		if w[0] == "pub" {
			err = nc.Publish(w[1], nil)
		} else {
			_, err = nc.QueueSubscribe(w[1], w[2], func(*nats.Msg) {})
		}
		if err == nil {
			err = nc.FlushTimeout(5 * time.Second) // its answer comes after the refusal
		}
		if err != nil {
			t.Fatal(err)
		}
		if last := nc.LastError(); last == before || !errors.Is(last, nats.ErrPermissionViolation) {
			allowed = append(allowed, strings.TrimSpace(line))
		}
	}
	return allowed
}
