// Program sdk measures a no-op worker in Go, Python and TypeScript beside the bare NATS client of the same language, in
// one run: calls per second, the time of one call, the CPU time of the worker, and how long it takes to start. run.sh
// installs what the workers need and starts it.
//
//	bench/sdk/run.sh -each 2s -rounds 3
//
// Every way gets the same requests, with the two headers of a fast call, or with -plain none. Server, workers and this
// program are processes of their own and share the machine, so the ratios say more than the figures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// run begins the ids of our turns.
var run = strconv.FormatInt(time.Now().UnixNano(), 36)

// plain leaves the headers of a call away.
var plain bool

const (
	flight    = 64               // calls at once
	startTime = 60 * time.Second // for a worker, on a busy machine
	callTime  = 10 * time.Second
)

// A way is one worker, or one tool of one: what it is compared to is the first of its language.
type way struct {
	language, name string
	tool           string
	command        []string // none: another tool of the way before

	prefix  string
	process *exec.Cmd
	ready   time.Duration
	runs    []sample
}

// A sample is one measurement of a way.
type sample struct{ p50, perSecond, cpu float64 } // µs, 1, µs of the worker for one call

func main() {
	if len(os.Args) == 2 {
		self := map[string]func() error{"server": serve, "bare": bare, "noop": noop}[os.Args[1]]
		if self != nil {
			exit(self())
		}
	}
	dir := flag.String("dir", "", "folder with the scripts of this package, where what they import is installed")
	python := flag.String("python", "", "Python interpreter that has nats-py and the SDK; none leaves Python out")
	node := flag.String("node", "", "node; none leaves TypeScript out")
	extra := flag.String("extra", "", "folder in which examples/workers/ci.sh built; none leaves those workers out")
	each := flag.Duration("each", 2*time.Second, "length of each measurement")
	rounds := flag.Int("rounds", 3, "rounds; medians are printed")
	flag.BoolVar(&plain, "plain", false, "requests without headers, as any NATS client sends them")
	flag.Parse()
	exit(measureAll(waysOf(*dir, *python, *node, *extra), *each, *rounds))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/sdk:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func waysOf(dir, python, node, extra string) []*way {
	self, err := os.Executable()
	if err != nil {
		exit(err)
	}
	ways := []*way{
		{language: "Go", name: "nats.go alone", tool: "noop", command: []string{self, "bare"}},
		{language: "Go", name: "package worker", tool: "noop", command: []string{self, "noop"}},
	}
	if python != "" {
		ways = append(ways,
			&way{language: "Python", name: "nats-py alone", tool: "noop", command: []string{python, filepath.Join(dir, "bare.py")}},
			&way{language: "Python", name: "SDK, async function", tool: "noop", command: []string{python, filepath.Join(dir, "noop.py")}},
			&way{language: "Python", name: "SDK, sync function", tool: "noop_sync"})
	}
	if node != "" {
		ways = append(ways,
			&way{language: "TypeScript", name: "nats.js alone", tool: "noop", command: []string{node, filepath.Join(dir, "bare.mjs")}},
			&way{language: "TypeScript", name: "SDK", tool: "noop", command: []string{node, filepath.Join(dir, "noop.mjs")}})
	}
	if extra != "" {
		ways = append(ways,
			&way{language: "Rust", name: "examples/workers, debug build", tool: "conf_echo", command: []string{filepath.Join(extra, "rust/debug/worker")}},
			&way{language: "Java", name: "examples/workers", tool: "conf_echo",
				command: []string{"java", "-cp", filepath.Join(extra, "java/classes") + ":" + filepath.Join(extra, "java/lib/*"), "Worker"}})
	}
	return ways
}

// measureAll starts every worker and compares them in rounds, A B C, A B C: what else the machine does meets all alike.
func measureAll(ways []*way, each time.Duration, rounds int) error {
	url, stop, err := startServer()
	if err != nil {
		return err
	}
	defer stop()
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()

	for i, w := range ways {
		if len(w.command) == 0 {
			w.prefix, w.process, w.ready = ways[i-1].prefix, ways[i-1].process, -1
			continue
		}
		w.prefix = fmt.Sprintf("bench%d", i)
		if err := w.start(nc, url); err != nil {
			return fmt.Errorf("%s, %s: %w", w.language, w.name, err)
		}
		defer func() {
			_ = w.process.Process.Kill()
			_ = w.process.Wait()
		}()
	}
	for range rounds {
		for _, w := range ways {
			s, err := w.measure(nc, each)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", w.language, w.name, err)
			}
			w.runs = append(w.runs, s)
		}
	}
	show(ways, rounds)
	return nil
}

// startServer starts the NATS server in a process of its own.
func startServer() (url string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command(self, "server")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if _, err := fmt.Fscanln(out, &url); err != nil {
		stop()
		return "", nil, fmt.Errorf("the server did not start: %w", err)
	}
	return url, stop, nil
}

// start starts the worker, and takes the time until it answers a call.
func (w *way) start(nc *nats.Conn, url string) error {
	w.process = exec.Command(w.command[0], w.command[1:]...)
	w.process.Stderr = os.Stderr
	w.process.Env = append(os.Environ(), "TOOLBUS_NATS_URL="+url, "TOOLBUS_PREFIX="+w.prefix,
		"TOOLBUS_CONCURRENCY="+strconv.Itoa(2*flight), "TOOLBUS_LOG_LEVEL=warning")
	began := time.Now()
	if err := w.process.Start(); err != nil {
		return err
	}
	c, err := newCaller(nc)
	for err == nil || errors.Is(err, nats.ErrNoResponders) && time.Since(began) < startTime {
		if err = c.call(w, 0); err == nil {
			w.ready = time.Since(began)
			return nil
		}
		time.Sleep(time.Millisecond) // NATS tells nobody who comes
	}
	_ = w.process.Process.Kill()
	_ = w.process.Wait()
	return fmt.Errorf("not ready after %v: %w", time.Since(began).Round(time.Millisecond), err)
}

// A caller makes one call after the other, and has an inbox for their answers.
type caller struct {
	nc     *nats.Conn
	answer *nats.Subscription
}

func newCaller(nc *nats.Conn) (*caller, error) {
	answer, err := nc.SubscribeSync(nats.NewInbox())
	return &caller{nc, answer}, err
}

// call makes one call, as an executor would, and waits for its end.
func (c *caller) call(w *way, n int) error {
	m := nats.NewMsg(w.prefix + ".v1.call." + w.tool)
	m.Reply = c.answer.Subject
	if !plain {
		m.Header[wire.HeaderCall] = []string{run + w.tool + "/c" + strconv.Itoa(n) + "/1"}
		m.Header[wire.HeaderTimeout] = []string{strconv.FormatInt(callTime.Milliseconds(), 10)}
	}
	m.Data = []byte(`{"city":"Oslo","days":3}`)
	if err := c.nc.PublishMsg(m); err != nil {
		return err
	}
	for {
		a, err := c.answer.NextMsg(callTime)
		if err != nil {
			return err
		}
		frame := wire.FrameOf(wire.Header(a.Header))
		switch {
		case a.Header.Get("Status") == "503":
			return nats.ErrNoResponders
		case frame == "":
			return nil
		case frame.Ends():
			return wire.DecodeFault(wire.Header(a.Header), a.Data)
		}
	}
}

// measure makes calls one after the other for half of d, and then flight at once for d.
func (w *way) measure(nc *nats.Conn, d time.Duration) (sample, error) {
	if _, _, err := w.load(nc, flight, d/4); err != nil { // warm
		return sample{}, err
	}
	alone, _, err := w.load(nc, 1, d/2)
	if err != nil {
		return sample{}, err
	}
	cpu := w.used()
	many, elapsed, err := w.load(nc, flight, d)
	if err != nil {
		return sample{}, err
	}
	slices.Sort(alone)
	n := float64(len(many))
	return sample{
		p50:       alone[len(alone)/2].Seconds() * 1e6,
		perSecond: n / elapsed.Seconds(),
		cpu:       (w.used() - cpu).Seconds() * 1e6 / n,
	}, nil
}

func (w *way) load(nc *nats.Conn, callers int, d time.Duration) (took []time.Duration, elapsed time.Duration, err error) {
	first := int(time.Now().UnixNano() & (1<<40 - 1)) // no call is there twice
	all := make([][]time.Duration, callers)
	errs := make([]error, callers)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			c, err := newCaller(nc)
			if errs[i] = err; err != nil {
				return
			}
			defer func() { _ = c.answer.Unsubscribe() }()
			for n, now := first+i<<24, start; now.Sub(start) < d && errs[i] == nil; n++ {
				errs[i] = c.call(w, n)
				then := time.Now()
				all[i] = append(all[i], then.Sub(now))
				now = then
			}
		})
	}
	wg.Wait()
	return slices.Concat(all...), time.Since(start), errors.Join(errs...)
}

// used is the CPU time of the worker until now; 0 where /proc does not say.
func (w *way) used() time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.process.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), ") ") // the name may have blanks
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100 everywhere that matters
}

func show(ways []*way, rounds int) {
	fmt.Printf("one call alone, then %d at once; medians of %d rounds; × is the median of the ratios to the language's first\n\n", flight, rounds)
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "p50 µs\t×\tcalls/s\t×\tCPU µs\t×\tready ms\t  way")
	var first *way
	for _, w := range ways {
		if first == nil || first.language != w.language {
			first = w
		}
		column := func(of func(sample) float64) (own, ratio float64) {
			var owns, ratios []float64
			for k := range w.runs {
				owns = append(owns, of(w.runs[k]))
				ratios = append(ratios, of(w.runs[k])/of(first.runs[k]))
			}
			return median(owns), median(ratios)
		}
		p50, p50x := column(func(s sample) float64 { return s.p50 })
		rate, ratex := column(func(s sample) float64 { return s.perSecond })
		cpu, cpux := column(func(s sample) float64 { return s.cpu })
		ready := "–"
		if w.ready > 0 {
			ready = strconv.FormatInt(w.ready.Milliseconds(), 10)
		}
		fmt.Fprintf(t, "%.0f\t%.2f\t%.0f\t%.2f\t%.1f\t%.2f\t%s\t  %s: %s\n", p50, p50x, rate, ratex, cpu, cpux, ready, w.language, w.name)
	}
	t.Flush()
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// serve is the NATS server.
func serve() error {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return errors.New("the NATS server does not take connections")
	}
	fmt.Println(s.ClientURL())
	s.WaitForShutdown()
	return nil
}

// bare is a no-op worker on nats.go alone.
func bare() error {
	nc, err := nats.Connect(os.Getenv("TOOLBUS_NATS_URL"))
	if err != nil {
		return err
	}
	_, err = nc.QueueSubscribe(os.Getenv("TOOLBUS_PREFIX")+".v1.call.noop", "workers", func(m *nats.Msg) { _ = m.Respond(m.Data) })
	if err != nil {
		return err
	}
	select {}
}

// noop is one on package worker.
func noop() error {
	ctx := context.Background()
	conn, err := bus.Connect(ctx, bus.Config{URL: os.Getenv("TOOLBUS_NATS_URL"), Prefix: os.Getenv("TOOLBUS_PREFIX")})
	if err != nil {
		return err
	}
	concurrency, err := strconv.Atoi(os.Getenv("TOOLBUS_CONCURRENCY"))
	if err != nil {
		return fmt.Errorf("TOOLBUS_CONCURRENCY: %w", err)
	}
	same := func(_ context.Context, c *worker.Call) (any, error) { return c.Args, nil }
	w, err := worker.New(worker.Config{Bus: conn, Concurrency: concurrency, Tools: []worker.Tool{
		{Manifest: tool.Manifest{ID: "noop", Effect: tool.Read}, Handler: worker.HandlerFunc(same)},
	}})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}
