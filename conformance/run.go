package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolbus/toolbus/bus"
)

// How many cases go at once: those that share a worker, and those that have one of their own.
const (
	sharedLanes = 2
	freshLanes  = 2
)

// A Config says whom to test, and how. Only Command is required.
type Config struct {
	Command []string // the worker's program and its arguments
	Dir     string   // that it runs in; empty means this one

	// Level is what the worker claims. Empty means Full.
	Level Level

	// Only is a part of the names of the cases to play. Empty means all.
	Only string

	// URL is a server to use: nats:// without TLS, and nobody else on it. Empty starts one with JetStream for each lane.
	// With it, cases that cut the worker off are skipped, and what it says to foreign subjects is not seen.
	URL string

	// Verbose gets the steps of each case when it is over. Nil means nobody.
	Verbose io.Writer

	pick    []string // in tests: the names of the cases to play
	out, in tamper   // in tests: what breaks the worker
}

func (c *Config) check() error {
	if len(c.Command) == 0 {
		return errors.New("conformance: Command is empty: name the worker's program")
	}
	if c.Level == "" {
		c.Level = Full
	}
	_, err := ParseLevel(string(c.Level))
	return err
}

// Run plays every case of the level and below to the worker. The error is about what is not the worker's: no server, no
// such case. A worker that cannot be started fails every case. It ends early where ctx does, with its error.
func Run(ctx context.Context, cfg Config) (Report, error) {
	begun := time.Now()
	if err := cfg.check(); err != nil {
		return Report{}, err
	}
	scripts, err := chosen(&cfg)
	if err != nil {
		return Report{}, err
	}
	report := Report{Command: cfg.Command, Level: cfg.Level, Cases: make([]*Case, len(scripts))}
	jobs := map[bool]chan job{false: make(chan job, len(scripts)), true: make(chan job, len(scripts))}
	for i, s := range scripts {
		report.Cases[i] = &Case{Name: s.name, File: s.file, Level: s.level}
		jobs[s.fresh] <- job{s, report.Cases[i]}
	}
	close(jobs[false])
	close(jobs[true])

	var all sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	work := func(queues ...chan job) {
		all.Go(func() {
			if err := serveLane(ctx, &cfg, queues, &mu); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	if cfg.URL != "" {
		work(jobs[false], jobs[true])
	} else {
		for range min(sharedLanes, len(jobs[false])) {
			work(jobs[false])
		}
		for range min(freshLanes, len(jobs[true])) {
			work(jobs[true])
		}
	}
	all.Wait()
	if ctx.Err() != nil {
		errs = append(errs, ctx.Err())
	}
	report.DurationMs = time.Since(begun).Milliseconds()
	return report, errors.Join(errs...)
}

// chosen are the cases that cfg asks for.
func chosen(cfg *Config) ([]*script, error) {
	all, err := loadScripts(transcripts)
	if err != nil {
		return nil, fmt.Errorf("conformance: %w", err)
	}
	var some []*script
	for _, s := range all {
		if cfg.Level.includes(s.level) && strings.Contains(s.name, cfg.Only) &&
			(cfg.pick == nil || slices.Contains(cfg.pick, s.name)) {
			some = append(some, s)
		}
	}
	if len(some) == 0 {
		return nil, fmt.Errorf("conformance: no case of level %s has %q in its name", cfg.Level, cfg.Only)
	}
	return some, nil
}

// A job is a case and where to write what came of it.
type job struct {
	script *script
	result *Case
}

// A lane is a server, and one worker at a time.
type lane struct {
	cfg    *Config
	server *bus.Server // nil where it is not ours
	url    string
	shared *house
	failed error // why no worker starts; the rest is not tried
}

func newLane(cfg *Config) (*lane, error) {
	if cfg.URL != "" {
		return &lane{cfg: cfg, url: cfg.URL}, nil
	}
	s, err := bus.StartServer(bus.ServerConfig{Port: -1, Lazy: true})
	if err != nil {
		return nil, fmt.Errorf("conformance: %w", err)
	}
	return &lane{cfg: cfg, server: s, url: s.ClientURL()}, nil
}

func (l *lane) close() {
	l.leave()
	if l.server != nil {
		l.server.Shutdown()
	}
}

func serveLane(ctx context.Context, cfg *Config, queues []chan job, log *sync.Mutex) error {
	l, err := newLane(cfg)
	if err != nil {
		return err
	}
	defer l.close()
	for _, jobs := range queues {
		for j := range jobs {
			if ctx.Err() != nil {
				return nil // Run says why
			}
			notes := l.play(ctx, j)
			if cfg.Verbose != nil {
				log.Lock()
				fmt.Fprint(cfg.Verbose, notes)
				log.Unlock()
			}
		}
		l.leave()
	}
	return nil
}

// leave ends the worker that cases shared, and looks for what came late.
func (l *lane) leave() {
	if l.shared == nil {
		return
	}
	l.shared.barrier()
	l.shared.lateFrames()
	l.shared.close()
	l.shared = nil
}

// play plays one case. The text is what happened, for Verbose.
func (l *lane) play(ctx context.Context, j job) string {
	begun := time.Now()
	defer func() { j.result.DurationMs = time.Since(begun).Milliseconds() }()
	h, err := l.house(ctx, j.script)
	if err != nil {
		j.result.fail("%v", err)
		return fmt.Sprintf("--- %s: %v\n", j.result.Name, err)
	}
	mark := 0
	if h == l.shared {
		mark = h.process.stderr.mark()
	} else {
		defer h.close()
	}
	values := j.script.over
	if len(values) == 0 {
		values = []string{""}
	}
	var notes strings.Builder
	for _, v := range values {
		p := newPlay(h, j.script, j.result, v)
		p.run(ctx)
		notes.WriteString(p.notes.String())
		if j.result.Status != Passed {
			break
		}
	}
	if j.result.Status == Failed {
		j.result.Stderr = h.process.stderr.since(mark)
		if h == l.shared {
			l.leave() // what went wrong here is nothing to the next case
		}
	}
	return fmt.Sprintf("--- %s: %s\n%s", j.result.Name, j.result.Status, notes.String())
}

// house is the worker for a case: the shared one, which is started again where it died, or a fresh one.
func (l *lane) house(ctx context.Context, s *script) (h *house, err error) {
	if l.failed != nil {
		return nil, fmt.Errorf("not tried: %w", l.failed)
	}
	root := s.root
	if root == "" {
		root = prefix
	}
	if s.fresh {
		h, err = l.open(ctx, root)
	} else {
		if l.shared != nil && l.shared.process.ended() {
			l.leave()
		}
		if l.shared == nil {
			l.shared, err = l.open(ctx, root)
		}
		h = l.shared
	}
	if err != nil {
		l.failed = err
	}
	return h, err
}
