package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/wire"
)

// A Config describes a journal. Only Bus is required.
type Config struct {
	Bus *bus.Conn

	// Retention is how long journals are kept. Zero means 24 h.
	Retention time.Duration

	// LateFor is how long late results are kept. Zero means 24 h. What is too large for a message is kept for 24 h at most.
	LateFor time.Duration

	// MaxBytes bounds all journals together, MaxLateBytes all late results that fit into a message; where it is reached the
	// oldest go. Zero means 256 MiB, and 64 MiB in memory.
	MaxBytes     int64
	MaxLateBytes int64

	// Memory keeps both in the server's memory and not on its disk: for an embedded server, which syncs every write.
	Memory bool

	// Content keeps arguments, values and pieces in journals too. Whoever may ask for a trace can then read them.
	Content bool

	// FlushEvery is how long the events of a turn are gathered. Zero means 20 ms.
	FlushEvery time.Duration

	// Appended is told of each page and of each late result: of a page how long its first event had waited when all were
	// handed to the connection (nobody waits for the server), of a late result how long it took to keep it. It may be called
	// from any goroutine and must not block. Nil tells nobody.
	Appended func(what What, took time.Duration, err error)

	// Logger hears of events that were dropped, and of streams that are not as we would create them. Nil discards.
	Logger *slog.Logger
}

func (cfg Config) filled() Config {
	room := int64(256 << 20)
	if cfg.Memory {
		room = 64 << 20 // both must fit beside others into an embedded server's 256 MiB
	}
	cfg.Retention = cmp.Or(cfg.Retention, 24*time.Hour)
	cfg.LateFor = cmp.Or(cfg.LateFor, 24*time.Hour)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, room)
	cfg.MaxLateBytes = cmp.Or(cfg.MaxLateBytes, room)
	cfg.FlushEvery = cmp.Or(cfg.FlushEvery, 20*time.Millisecond)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return cfg
}

const (
	opTimeout = 5 * time.Second // of one question to JetStream, whatever its context says

	maxHeld  = 16 << 20  // bytes of all events that wait
	pageFull = 256 << 10 // bytes of events with which a page does not wait for its time
	maxSpare = 64        // pages that are kept to be filled again
	tellGap  = 10 * time.Second
)

// What is appended.
type What string

// The two streams' worth.
const (
	Events     What = "events"
	LateResult What = "late_result"
)

// A Journal writes and reads the journals and late results of a deployment. It is safe for concurrent use. Make it with
// New and end it with Close.
type Journal struct {
	cfg       Config
	bus       *bus.Conn
	log, late string // names of the streams
	api       string // what JetStream's API subjects begin with

	kick    chan struct{} // a page is due, or the end
	done    chan struct{} // closed when run has ended
	tick    *time.Timer   // set while a page is open
	dropped atomic.Uint64

	mu     sync.Mutex
	open   map[string]*page // by turn: being filled
	due    []*page          // to be sent, in this order
	spare  []*page
	held   int // bytes of all events in open, due and on their way
	closed bool

	// Of run alone.
	told   uint64 // how many were dropped when it was last in the log
	toldAt time.Time
	why    error // why some could not be sent
}

// A page is events of one turn that go out in one message.
type page struct {
	turn   string
	events []wire.Event
	weight int // bytes
	began  time.Time
}

// New makes a journal and starts the goroutine that sends what is written. It asks the server for nothing: see Ensure.
func New(cfg Config) *Journal {
	prefix, _, _ := strings.Cut(cfg.Bus.Subjects().Logs(), ".")
	prefix = strings.ToUpper(prefix)
	j := &Journal{
		cfg:  cfg.filled(),
		bus:  cfg.Bus,
		log:  prefix + "_LOG",
		late: prefix + "_LATE",
		api:  cfg.Bus.JetStreamAPI(),
		kick: make(chan struct{}, 1),
		done: make(chan struct{}),
		tick: time.NewTimer(time.Hour),
		open: map[string]*page{},
	}
	j.tick.Stop()
	go j.run()
	return j
}

// Write puts one event into the journal of its turn. It never waits, and keeps what ev points to, which nobody may change
// any more; ev itself it copies. TurnEnded and LateResult send what the turn has at once. An event for which there is no
// room is dropped and counted.
func (j *Journal) Write(ev *wire.Event) {
	if ev.Type == wire.Alive {
		return
	}
	e := *ev
	if !j.cfg.Content {
		leaveOut(&e)
	}
	w := weigh(&e)
	if w > pageFull && w > j.bus.Inline() { // it would not fit into a message, and should not be held until then
		lessen(&e)
		w = weigh(&e)
	}
	if !j.add(e, w) {
		j.dropped.Add(1)
	}
}

func (j *Journal) add(e wire.Event, weight int) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || j.held+weight > maxHeld {
		return false
	}
	p := j.open[e.Turn]
	if p == nil {
		if len(j.open) == 0 {
			j.tick.Reset(j.cfg.FlushEvery)
		}
		p = j.blank(e.Turn)
		j.open[e.Turn] = p
	}
	p.events = append(p.events, e)
	p.weight += weight
	j.held += weight
	if e.Type == wire.TurnEnded || e.Type == wire.LateResult || p.weight >= pageFull {
		delete(j.open, e.Turn)
		j.due = append(j.due, p)
		j.wake()
	}
	return true
}

// Dropped is how many events were not journalled: there was no room, no connection, or the journal was closed. What the
// server lost is not among them.
func (j *Journal) Dropped() uint64 { return j.dropped.Load() }

// Close sends what waits and ends the journal's goroutine; it returns when the server has taken everything in, or ctx
// ends. What is written afterwards is dropped. Reading and Keep go on working. Closing twice is fine.
func (j *Journal) Close(ctx context.Context) error {
	j.mu.Lock()
	j.closed = true
	j.ripen()
	j.mu.Unlock()
	j.wake()

	select {
	case <-j.done:
	case <-ctx.Done():
		return fmt.Errorf("journal: close: %w", ctx.Err())
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	err := nats.ErrDisconnected
	if j.bus.Connected() {
		err = j.bus.NATS().FlushWithContext(ctx)
	}
	if err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("journal: close: the last events may be lost: %w", err)
	}
	return nil
}

func (j *Journal) wake() {
	select {
	case j.kick <- struct{}{}:
	default: // it will look anyway
	}
}

// ripen makes all open pages due. The caller holds mu.
func (j *Journal) ripen() {
	j.tick.Stop()
	for _, p := range j.open {
		j.due = append(j.due, p)
	}
	clear(j.open)
}

// blank is an empty page. The caller holds mu.
func (j *Journal) blank(turn string) *page {
	last := len(j.spare) - 1
	if last < 0 {
		return &page{turn: turn, began: time.Now()}
	}
	p := j.spare[last]
	j.spare = j.spare[:last]
	p.turn, p.began = turn, time.Now()
	return p
}
