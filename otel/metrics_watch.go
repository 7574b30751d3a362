package otel

import (
	"context"
	"errors"

	"github.com/nats-io/nats-server/v2/server"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/worker"
)

// Figures are what is looked up when somebody asks for the metrics. They are called from any goroutine, must not block,
// and what is nil is not shown.
type Figures struct {
	Calls, Turns func() int                                   // under way
	Workers      func(each func(tool string, workers int))    // how many live workers each tool has
	Fleet        func() (running, capacity int)               // of all live workers
	Breakers     func(each func(key string, s breaker.State)) // as this executor sees them
	Dropped      func() uint64                                // events that the journal could not keep
	Conn         *bus.Conn                                    // the connection
	Server       *bus.Server                                  // the NATS server in this process
	Worker       func() worker.Stats                          // of the worker in this process
}

// Watch shows figures until stop is called.
func (m *Metrics) Watch(f Figures) (stop func(), err error) {
	w := watch{m: m, f: f}
	if f.Calls != nil {
		w.gauge("toolbus.calls.in_flight", "{call}", "Calls under way.", one(f.Calls))
	}
	if f.Turns != nil {
		w.gauge("toolbus.turns.in_flight", "{turn}", "Turns under way.", one(f.Turns))
	}
	if f.Workers != nil {
		w.gauge("toolbus.workers", "{worker}", "Live workers of each tool.", w.workers)
	}
	if f.Fleet != nil {
		w.gauge("toolbus.worker.running", "{call}", "Calls that run in workers: in all that an executor sees, or in this one.",
			one(func() int { running, _ := f.Fleet(); return running }))
		w.gauge("toolbus.worker.capacity", "{call}", "Calls that workers take at once: all that an executor sees, or this one.",
			one(func() int { _, capacity := f.Fleet(); return capacity }))
	}
	if f.Breakers != nil {
		w.gauge("toolbus.breaker.state", "", "State of each tool's circuit breaker, the worst of its partitions: 0 closed, 1 half-open, 2 open.", w.breakers)
	}
	if f.Dropped != nil {
		w.gauge("toolbus.journal.dropped", "{event}", "Events that the journal could not keep, since the start.",
			func(see observe) { see(int64(f.Dropped()), nil) })
	}
	if f.Conn != nil {
		w.counter("toolbus.orphan_frames", "{frame}", "Answers that came for nobody: their attempt was over.",
			func(see observe) { see(int64(f.Conn.Orphans()), nil) })
		w.gauge("toolbus.connected", "", "Whether the connection to NATS stands: 1 or 0.",
			func(see observe) { see(truth(f.Conn.Connected()), nil) })
		w.counter("toolbus.reconnects", "{reconnect}", "How often the connection to NATS came back.",
			func(see observe) { see(int64(f.Conn.NATS().Stats().Reconnects), nil) })
	}
	if f.Worker != nil {
		w.gauge("toolbus.worker.leaked", "{call}", "Handlers of this worker that go on although their call is over.",
			one(func() int { return f.Worker().Leaked }))
	}
	if f.Server != nil {
		w.server(f.Server.NATS())
	}
	return w.stop, errors.Join(w.errs...)
}

type (
	// observe takes one value, of one set of attributes.
	observe func(v int64, set []metric.ObserveOption)

	// A watch is the figures of one Watch.
	watch struct {
		m    *Metrics
		f    Figures
		regs []metric.Registration
		errs []error
	}
)

func one(f func() int) func(observe) { return func(see observe) { see(int64(f()), nil) } }

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func (w *watch) stop() {
	for _, r := range w.regs {
		_ = r.Unregister() // it fails only where it is not there
	}
}

func (w *watch) gauge(name, unit, about string, look func(observe)) {
	g, err := w.m.meter.Int64ObservableGauge(name, metric.WithDescription(about), metric.WithUnit(unit))
	w.register(g, err, look)
}

func (w *watch) counter(name, unit, about string, look func(observe)) {
	c, err := w.m.meter.Int64ObservableCounter(name, metric.WithDescription(about), metric.WithUnit(unit))
	w.register(c, err, look)
}

func (w *watch) register(i metric.Int64Observable, err error, look func(observe)) {
	if err != nil {
		w.errs = append(w.errs, err)
		return
	}
	r, err := w.m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		defer survive()
		look(func(v int64, set []metric.ObserveOption) { o.ObserveInt64(i, v, set...) })
		return nil
	}, i)
	if err != nil {
		w.errs = append(w.errs, err)
		return
	}
	w.regs = append(w.regs, r)
}

// fold shows one value for each tool: those without series of their own are one, for which join says what it is of two.
// Where there are more tools than have series it gives none away: those that are called get them.
func (w *watch) fold(see observe, join func(a, b int64) int64, each func(put func(tool string, v int64))) {
	add := func(to map[string]int64, name string, v int64) {
		if was, ok := to[name]; ok {
			v = join(was, v)
		}
		to[name] = v
	}
	all, shown := map[string]int64{}, map[string]int64{}
	each(func(name string, v int64) { add(all, name, v) })
	for name, v := range all {
		l := w.m.tools.have(name)
		switch {
		case l != nil:
		case len(all) <= maxTools:
			l = w.m.tools.get(name)
		default:
			l = w.m.tools.other()
		}
		add(shown, l.tool, v)
	}
	for name, v := range shown {
		see(v, []metric.ObserveOption{metric.WithAttributes(attribute.String("tool", name))})
	}
}

func (w *watch) workers(see observe) {
	w.fold(see, func(a, b int64) int64 { return a + b }, func(put func(string, int64)) {
		w.f.Workers(func(name string, n int) { put(name, int64(n)) })
	})
}

func (w *watch) breakers(see observe) {
	w.fold(see, func(a, b int64) int64 { return max(a, b) }, func(put func(string, int64)) {
		w.f.Breakers(func(key string, s breaker.State) { put(toolOf(key), level(s)) })
	})
}

// level is how far a breaker keeps calls away.
func level(s breaker.State) int64 {
	switch s {
	case breaker.Open, breaker.ForcedOpen:
		return 2
	case breaker.HalfOpen:
		return 1
	}
	return 0
}

// maxStreams bounds the streams that are shown by name.
const maxStreams = 50

// server shows the figures of the NATS server in this process, which asks nobody over the network.
func (w *watch) server(s *server.Server) {
	by := func(key, value string) []metric.ObserveOption {
		return []metric.ObserveOption{metric.WithAttributes(attribute.String(key, value))}
	}
	in, out := by("direction", "in"), by("direction", "out")
	varz := func(look func(v *server.Varz, see observe)) func(observe) {
		return func(see observe) {
			if v, err := s.Varz(nil); err == nil {
				look(v, see)
			}
		}
	}
	w.gauge("toolbus.nats.connections", "{connection}", "Connections to the NATS server in this process.",
		func(see observe) { see(int64(s.NumClients()), nil) })
	w.counter("toolbus.nats.messages", "{message}", "Messages that the NATS server in this process took and gave.",
		varz(func(v *server.Varz, see observe) { see(v.InMsgs, in); see(v.OutMsgs, out) }))
	w.counter("toolbus.nats.traffic", "By", "Bytes that the NATS server in this process took and gave.",
		varz(func(v *server.Varz, see observe) { see(v.InBytes, in); see(v.OutBytes, out) }))
	w.counter("toolbus.nats.slow_consumers", "{connection}", "Connections that the NATS server in this process ended because they did not keep up.",
		func(see observe) { see(s.NumSlowConsumers(), nil) })

	jsz := func(opts server.JSzOptions, look func(j *server.JSInfo, see observe)) func(observe) {
		return func(see observe) {
			if j, err := s.Jsz(&opts); err == nil {
				look(j, see)
			}
		}
	}
	memory, file := by("storage", "memory"), by("storage", "file")
	w.gauge("toolbus.nats.jetstream.used", "By", "Bytes that JetStream in this process keeps.",
		jsz(server.JSzOptions{}, func(j *server.JSInfo, see observe) { see(int64(j.Memory), memory); see(int64(j.Store), file) }))
	w.gauge("toolbus.nats.jetstream.limit", "By", "Bytes that JetStream in this process may keep.",
		jsz(server.JSzOptions{}, func(j *server.JSInfo, see observe) { see(j.Config.MaxMemory, memory); see(j.Config.MaxStore, file) }))
	streams := func(opts server.JSzOptions, of func(server.StreamDetail) uint64) func(observe) {
		opts.Streams = true
		return jsz(opts, func(j *server.JSInfo, see observe) {
			sums := map[string]int64{}
			for _, a := range j.AccountDetails {
				for _, d := range a.Streams {
					name := d.Name
					if _, ok := sums[name]; !ok && len(sums) >= maxStreams {
						name = otherTool
					}
					sums[name] += int64(of(d))
				}
			}
			for name, v := range sums {
				see(v, by("stream", name))
			}
		})
	}
	w.gauge("toolbus.nats.jetstream.stream.messages", "{message}", "Messages in each stream of the NATS server in this process.",
		streams(server.JSzOptions{}, func(d server.StreamDetail) uint64 { return d.State.Msgs }))
	w.gauge("toolbus.nats.jetstream.stream.used", "By", "Bytes in each stream of the NATS server in this process.",
		streams(server.JSzOptions{}, func(d server.StreamDetail) uint64 { return d.State.Bytes }))
	w.gauge("toolbus.nats.jetstream.lag", "{message}", "Messages in each stream that its consumers have yet to get.",
		streams(server.JSzOptions{Consumer: true}, func(d server.StreamDetail) uint64 {
			n := uint64(0)
			for _, c := range d.Consumer {
				n += c.NumPending
			}
			return n
		}))
}
