// Command breakers shows a circuit breaker that three executors share: it starts a NATS cluster of three servers and three
// `executor serve` processes on this machine, lets a tool fail and get well again, and prints what happens when.
//
//	go run ./examples/breakers                # the whole story, about 15 seconds
//	go run ./examples/breakers -kill-leader   # the server that leads the breakers' store is killed in the middle
//
// In another terminal, `executor breakers --watch --nats-url …` (the address is printed) shows the shared record change.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

func main() {
	node := flag.Int("node", -1, "")
	base := flag.Int("port", 14222, "first of the six ports that the NATS servers use")
	dir := flag.String("dir", "", "")
	kill := flag.Bool("kill-leader", false, "kill the server that leads the breakers' store in the middle")
	program := flag.String("executor", "", "path of the executor program (default: built from this checkout)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *node >= 0 {
		runNode(*node, *base, *dir)
		return
	}
	if err := story(ctx, *base, *program, *kill); err != nil {
		fmt.Fprintln(os.Stderr, "breakers:", err)
		os.Exit(1)
	}
}

// runNode is one NATS server of the cluster, until it is killed or the one who started it is gone.
func runNode(i, base int, dir string) {
	var routes []string
	for n := range 3 {
		if n == i {
			continue
		}
		routes = append(routes, fmt.Sprintf("nats-route://127.0.0.1:%d", base+3+n))
	}
	s, err := server.NewServer(&server.Options{
		ServerName: fmt.Sprintf("n%d", i+1), Host: "127.0.0.1", Port: base + i,
		Cluster: server.ClusterOpts{Name: "example", Host: "127.0.0.1", Port: base + 3 + i}, Routes: server.RoutesFromStr(strings.Join(routes, ",")),
		JetStream: true, StoreDir: filepath.Join(dir, fmt.Sprint(i)), NoSigs: true, NoLog: true,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "nats:", err)
		os.Exit(1)
	}
	s.Start()
	_, _ = os.Stdin.Read(make([]byte, 1)) // ends with whoever started us
	s.Shutdown()
}

// A show is the running example.
type show struct {
	began   time.Time
	calls   *client.Client
	reached atomic.Int32 // calls that the tool itself saw
	sick    atomic.Bool
	opens   atomic.Int32 // how often it opened
	closed  atomic.Bool  // the shared record said so last

	mu     sync.Mutex
	opened time.Time
}

func (s *show) say(format string, args ...any) {
	fmt.Printf("%8.3f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

func story(ctx context.Context, base int, program string, kill bool) error {
	dir, err := os.MkdirTemp("", "toolbus-breakers-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if program == "" {
		program = filepath.Join(dir, "executor")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/executor").CombinedOutput(); err != nil {
			return fmt.Errorf("build the executor (run this from the checkout, or pass -executor): %w\n%s", err, out)
		}
	}
	s := &show{began: time.Now()}
	var urls []string
	nodes := map[string]*exec.Cmd{}
	for i := range 3 {
		cmd, err := start(os.Args[0], "-node", fmt.Sprint(i), "-port", fmt.Sprint(base), "-dir", dir)
		if err != nil {
			return err
		}
		defer end(cmd)
		nodes[fmt.Sprintf("n%d", i+1)] = cmd
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", base+i))
	}
	url := strings.Join(urls, ",")
	c, err := join(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close()
	s.say("three NATS servers are up: %s", url)
	for range 3 {
		cmd, err := start(program, "serve", "--nats-url", url, "--log-level", "error")
		if err != nil {
			return err
		}
		defer end(cmd)
	}
	return s.run(ctx, c, url, nodes, kill)
}

// run is the story itself.
func (s *show) run(ctx context.Context, c *bus.Conn, url string, nodes map[string]*exec.Cmd, kill bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := worker.New(worker.Config{Bus: c, Tools: []worker.Tool{s.weather()}, Grace: time.Second})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	if _, err := c.Subscribe(c.Subjects().Event("breaker"), "", s.event); err != nil {
		return err
	}
	s.calls = client.New(c)
	if err := s.until(ctx, "three executors answer", func(o outcomes) bool { return len(o.by) == 3 && o.bad == 0 }); err != nil {
		return err
	}
	s.say("watch it with: executor breakers --watch --nats-url %s", url)

	s.sick.Store(true)
	s.reached.Store(0)
	s.say("the tool is sick from now on")
	if err := s.until(ctx, "all three refuse", func(o outcomes) bool { return len(o.refused) == 3 }); err != nil {
		return err
	}
	s.mu.Lock()
	s.say("%d calls reached the sick tool; all three executors refuse %v after the record said open", s.reached.Load(), time.Since(s.opened).Round(time.Millisecond))
	s.mu.Unlock()
	if kill {
		name, err := leader(ctx, c)
		if err != nil {
			return err
		}
		s.say("kill -9 of %s, which leads the breakers' store", name)
		_ = nodes[name].Process.Kill()
	}
	s.round(ctx, "while it is open, 12 calls at once")
	if !kill {
		s.reached.Store(0)
		if err := s.until(ctx, "a probe has failed, and it is open again", func(outcomes) bool { return s.opens.Load() > 1 }); err != nil {
			return err
		}
		s.say("meanwhile %d call reached the sick tool: the probe", s.reached.Load())
	}
	s.sick.Store(false)
	s.say("the tool is well again; nobody knows yet")
	if err := s.until(ctx, "it is closed everywhere", func(o outcomes) bool { return o.good == o.all && len(o.by) == 3 }); err != nil {
		return err
	}
	s.round(ctx, "and 12 calls more")
	if kill {
		return s.settled(ctx)
	}
	return nil
}

// settled waits until the shared record says closed again: the executors decided alone while the store was away.
func (s *show) settled(ctx context.Context) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if s.closed.Load() {
			s.say("the store is back, and its record says closed")
			return nil
		}
		s.burst(ctx, 3)
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.New("a minute has passed, and the record does not say closed")
}

// weather is the tool: its breaker opens after five failures in a row and stays open for three seconds.
func (s *show) weather() worker.Tool {
	five, open, once := 5, int64(3000), 1
	return worker.Tool{
		Manifest: tool.Manifest{
			ID: "weather", Version: "1.0.0", Description: "Tells the weather, or that it cannot.", Effect: tool.Read,
			Retry:   &tool.RetryPolicy{MaxAttempts: &once},
			Breaker: &tool.BreakerPolicy{FailureThreshold: &five, TimeoutMs: &open},
		},
		Handler: worker.HandlerFunc(func(context.Context, *worker.Call) (any, error) {
			s.reached.Add(1)
			if s.sick.Load() {
				return nil, fault.New(fault.Upstream, "the weather service answers 500")
			}
			return "sunny", nil
		}),
	}
}

// event is a transition, which is published once for all executors.
func (s *show) event(m *nats.Msg) {
	var ev wire.Event
	if wire.Decode(m.Data, &ev) != nil {
		return
	}
	s.closed.Store(ev.BreakerState == "closed")
	if ev.BreakerState == "open" {
		s.mu.Lock()
		s.opened = time.Now()
		s.mu.Unlock()
		s.opens.Add(1)
	}
	s.say("EVENT %s (%s), said by executor %.6s", ev.Decision, ev.Because, ev.Executor)
}

// outcomes are those of some calls, by executor.
type outcomes struct {
	all, good, bad int
	by, refused    map[string]int
}

// burst makes calls at once. The executors share them as a queue group.
func (s *show) burst(ctx context.Context, n int) outcomes {
	o := outcomes{all: n, by: map[string]int{}, refused: map[string]int{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			who := ""
			out, err := s.calls.Stream(ctx, wire.TurnRequest{Calls: []tool.Call{{ID: "c", Tool: "weather"}}}, func(ev *wire.Event) {
				if ev.Executor != "" {
					who = ev.Executor
				}
			})
			mu.Lock()
			defer mu.Unlock()
			if who != "" {
				o.by[who]++
			}
			switch {
			case err == nil && out.Results[0].Status == tool.Success:
				o.good++
			case err == nil && out.Results[0].Fault.Kind == fault.CircuitOpen:
				o.refused[who]++
			default:
				o.bad++
			}
		})
	}
	wg.Wait()
	return o
}

// round makes twelve calls and says what became of them.
func (s *show) round(ctx context.Context, what string) {
	before := s.reached.Load()
	o := s.burst(ctx, 12)
	s.say("%s: %d reached the tool, %d succeeded, %d were refused by %d executors", what, s.reached.Load()-before, o.good, o.all-o.good-o.bad, len(o.refused))
}

// until makes calls, twelve at a time, until done says so.
func (s *show) until(ctx context.Context, what string, done func(outcomes) bool) error {
	seen := outcomes{refused: map[string]int{}}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		o := s.burst(ctx, 12)
		for who := range o.refused {
			seen.refused[who]++
		}
		if o.good == o.all {
			seen.refused = map[string]int{}
		}
		o.refused = seen.refused
		if done(o) {
			s.say("%s", what)
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.New("a minute has passed, and not yet: " + what)
}

// join connects once the cluster has a leader.
func join(ctx context.Context, url string) (*bus.Conn, error) {
	var last error
	for range 200 {
		c, err := bus.Connect(ctx, bus.Config{URL: url, Name: "example"})
		if err == nil {
			if _, err = c.JetStream().AccountInfo(ctx); err == nil {
				return c, nil
			}
			c.Close()
		}
		last = err
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, fmt.Errorf("the NATS cluster does not come up: %w", last)
}

// leader is the server that leads the stream of the breakers.
func leader(ctx context.Context, c *bus.Conn) (string, error) {
	st, err := c.JetStream().Stream(ctx, "KV_TB_BREAKERS")
	if err != nil {
		return "", err
	}
	info := st.CachedInfo()
	if info.Cluster == nil {
		return "", errors.New("the breakers' store is not replicated")
	}
	return info.Cluster.Leader, nil
}

// start runs a program that ends when its standard input does.
func start(path string, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(path, args...)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return cmd, cmd.Start()
}

func end(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(os.Interrupt)
	done := time.AfterFunc(3*time.Second, func() { _ = cmd.Process.Kill() })
	defer done.Stop()
	_ = cmd.Wait() // killed or told to stop: either way it is over
}
