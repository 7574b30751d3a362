package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/internal/demo"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/worker"
)

func TestMain(m *testing.M) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "TOOLBUS_") {
			os.Unsetenv(name)
		}
	}
	if len(os.Args) > 1 && os.Args[1] == "crash-worker" { // executor dev starts itself once more for the tool crash
		os.Exit(run(cli.Signals(context.Background()), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	natstest.Main(m)
}

// A page is what a command wrote, and tells who waits for a text.
type page struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{}
}

func newPage() *page { return &page{more: make(chan struct{})} }

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.more)
	p.more = make(chan struct{})
	return p.b.Write(b)
}

func (p *page) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.String()
}

func (p *page) await(t *testing.T, text string) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		p.mu.Lock()
		more, is := p.more, strings.Contains(p.b.String(), text)
		p.mu.Unlock()
		if is {
			return
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("%q did not come; there is:\n%s", text, p)
		}
	}
}

// A said is how a command ended.
type said struct {
	code     int
	out, err string
}

func command(in string, args ...string) said {
	var out, errs bytes.Buffer
	code := run(context.Background(), args, strings.NewReader(in), &out, &errs)
	return said{code, out.String(), errs.String()}
}

// background runs a command until the test ends, and returns when it has written text to stdout or stderr. It must end
// with code 0.
func background(t *testing.T, text string, args ...string) *page {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p, ended := newPage(), make(chan int, 1)
	go func() { ended <- run(ctx, args, strings.NewReader(""), p, p) }()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != cli.ExitOK {
			t.Errorf("executor %v ended with %d, want 0:\n%s", args, code, p)
		}
	})
	p.await(t, text)
	return p
}

// work runs demo tools on a server until the test ends.
func work(t *testing.T, server *bus.Server, names ...string) *worker.Worker {
	t.Helper()
	tools, err := demo.Tools(demo.Config{Only: names})
	if err != nil {
		t.Fatal(err)
	}
	return employ(t, server, tools...)
}

// employ runs tools on a server until the test ends.
func employ(t *testing.T, server *bus.Server, tools ...worker.Tool) *worker.Worker {
	t.Helper()
	w, err := worker.New(worker.Config{Bus: natstest.Connect(t, server), Tools: tools})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-w.Ready()
	return w
}

// stage is a server, a worker with some demo tools, and executor serve. It returns the flag that leads there.
func stage(t *testing.T) string {
	t.Helper()
	server := natstest.Server(t)
	at := "--nats-url=" + server.ClientURL()
	work(t, server, "calculator", "echo", "flaky", "slow")
	background(t, "executor is ready", "serve", at)
	return at
}

func (s said) check(t *testing.T, what string, code int, out, errs []string) {
	t.Helper()
	if s.code != code {
		t.Errorf("%s: exit code %d, want %d", what, s.code, code)
	}
	for _, want := range out {
		if !strings.Contains(s.out, want) {
			t.Errorf("%s: stdout %q, want %q in it", what, s.out, want)
		}
	}
	for _, want := range errs {
		if !strings.Contains(s.err, want) {
			t.Errorf("%s: stderr %q, want %q in it", what, s.err, want)
		}
	}
}

// discard is for what a command writes that a test does not look at.
var discard = io.Discard
