package mcptool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolbus/toolbus/worker"
)

// A Config describes one MCP server. Command or URL is required, and not both.
type Config struct {
	// Command is the program of a server and its arguments. There is no shell.
	Command []string
	// Dir is where the program runs. Empty means where this process does.
	Dir string
	// Env is what the program sees beyond PATH, HOME, LANG, TZ, USER, LOGNAME, SHELL, TERM and TMPDIR: NAME passes a
	// variable of this process through, NAME=value sets one. Values are never logged.
	Env []string

	// URL is that of a server's streamable HTTP endpoint, http or https.
	URL string
	// Header goes with every request to the URL. In its values ${env:NAME} stands for a variable of this process and
	// ${file:PATH} for what a file holds, so that a secret need not be written here. They are never logged, and never
	// follow a redirect to another host.
	Header map[string]string

	// Name is what the log calls the server. Empty means the program's name, or the URL's host.
	Name string
	// Prefix begins the names of all tools.
	Prefix string
	// Only are the tools to take, by the server's own names. Empty means all.
	Only []string

	// Timeout is that of every tool. Zero leaves it to the manifest's default of 30 s.
	Timeout time.Duration
	// Concurrency is how many calls the server gets at once; more are refused as overloaded. Zero means 16.
	Concurrency int
	// StartTimeout is how long a server may take until it has said what it offers. Zero means 30 s.
	StartTimeout time.Duration
	// Grace is how long a program may go on once it was told to end: first after its input was closed, and as long again
	// after SIGTERM. Zero means a second.
	Grace time.Duration

	Logger *slog.Logger // nil discards
}

// Bounds and defaults.
const (
	defaultConcurrency  = 16
	defaultStartTimeout = 30 * time.Second
	defaultGrace        = time.Second
	firstWait           = 250 * time.Millisecond // before a server is started again
	longestWait         = 30 * time.Second
	healthy             = 10 * time.Second // a server that lived so long starts again after firstWait
	busy                = 50 * time.Millisecond
	closeTime           = 5 * time.Second // that the end of a session may take
)

var errClosed = errors.New("the bridge was closed")

// A Bridge is tools of one MCP server. Make it with Open, and Close it. It is safe for concurrent use.
type Bridge struct {
	cfg     Config
	log     *slog.Logger
	client  *mcp.Client
	header  map[string]string // with its secrets
	http    *http.Transport
	places  chan struct{} // one for each call that runs
	changed chan struct{}
	relist  chan struct{} // the server says that its list is another one

	stop    context.CancelCauseFunc
	closing <-chan struct{} // closed when Close was called
	done    chan struct{}   // closed when nothing of the bridge runs any more

	tokens  atomic.Uint64
	waiting sync.Map // progress token to *worker.Call

	mu      sync.Mutex
	session *session      // nil while the server is away
	away    string        // why
	next    time.Time     // when it is started next, or was: it is starting then
	turned  chan struct{} // closed when any of these is another
	tools   []worker.Tool
	digest  string // of the tools
	told    string // the last complaint about the list, so as to say it once
}

// Open starts or reaches the server, and returns when it has said which tools it has. The error says what to do. The
// bridge lives until Close, also when ctx ends.
func Open(ctx context.Context, cfg Config) (*Bridge, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	b := &Bridge{
		cfg:     cfg,
		http:    http.DefaultTransport.(*http.Transport).Clone(),
		log:     cfg.Logger.With("mcp", cfg.Name),
		places:  make(chan struct{}, cfg.Concurrency),
		changed: make(chan struct{}, 1),
		relist:  make(chan struct{}, 1),
		done:    make(chan struct{}),
		turned:  make(chan struct{}),
	}
	var err error
	if b.header, err = expandAll(cfg.Header); err != nil {
		return nil, err
	}
	b.client = mcp.NewClient(&mcp.Implementation{Name: "toolbus", Version: "1"}, &mcp.ClientOptions{
		Logger:         slog.New(slog.DiscardHandler), // what matters comes back as errors
		Capabilities:   &mcp.ClientCapabilities{},     // nobody is here to be asked, and there are no folders to show
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
		KeepAlive:      0,

		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { wish(b.relist) },
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { b.progress(r.Params) },
	})

	s, err := b.connect(ctx)
	if err != nil {
		b.http.CloseIdleConnections()
		return nil, fmt.Errorf("mcp server %s: %w", cfg.Name, err)
	}
	<-b.changed // Tools are there, so nothing changed yet
	keep, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	b.stop, b.closing = stop, keep.Done()
	go func() {
		defer close(b.done)
		defer b.http.CloseIdleConnections()
		b.keep(keep, s)
	}()
	return b, nil
}

// Check says why the server cannot be started or reached, as far as can be known before, or nil.
func (c Config) Check() error {
	if err := c.check(); err != nil {
		return err
	}
	_, err := expandAll(c.Header)
	return err
}

// check says what is wrong with the configuration, and fills in the defaults.
func (c *Config) check() error {
	switch {
	case len(c.Command) == 0 && c.URL == "":
		return errors.New("mcp: no server is given: set a command, or a URL")
	case len(c.Command) > 0 && c.URL != "":
		return errors.New("mcp: both a command and a URL are given: choose one")
	case c.URL == "" && len(c.Header) > 0:
		return errors.New("mcp: headers are for a URL; a program gets its secrets by its environment")
	case c.URL != "" && (c.Dir != "" || len(c.Env) > 0):
		return errors.New("mcp: dir and env are for a command, and a URL is given")
	case c.Timeout < 0 || c.StartTimeout < 0 || c.Grace < 0 || c.Concurrency < 0:
		return errors.New("mcp: timeout, start timeout, grace and concurrency: expected 0 or more")
	}
	c.Timeout = c.Timeout.Truncate(time.Millisecond)
	name, err := c.place()
	if err != nil {
		return err
	}
	c.Name = or(c.Name, name)
	c.Concurrency = or(c.Concurrency, defaultConcurrency)
	c.StartTimeout = or(c.StartTimeout, defaultStartTimeout)
	c.Grace = or(c.Grace, defaultGrace)
	c.Logger = or(c.Logger, slog.New(slog.DiscardHandler))
	return nil
}

// place checks where the server is, and gives its short name.
func (c *Config) place() (string, error) {
	if c.URL == "" {
		return checkCommand(c)
	}
	return checkURL(c.URL)
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

func wish(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is wished for
	}
}

// Tools are what the server offers now. The slice is the caller's.
func (b *Bridge) Tools() []worker.Tool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]worker.Tool(nil), b.tools...)
}

// Changed has an element when Tools are others than they were. It is for one reader, and is never closed.
func (b *Bridge) Changed() <-chan struct{} { return b.changed }

// Close ends what runs, the session and the program, with its whole process group. It takes a few seconds at most.
func (b *Bridge) Close() {
	b.stop(errClosed)
	<-b.done
}
