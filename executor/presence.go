package executor

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// A Presence is what an executor says of itself once a second, as JSON, on tb.v1.event.executor.<id>.
type Presence struct {
	Executor string `json:"executor"`
	InFlight int    `json:"in_flight"` // calls under way
	Turns    int    `json:"turns"`     // turns under way
	Breakers string `json:"breakers"`  // SharedBreakers or LocalBreakers

	// Tools are those with the most to tell, at most fifty; MoreTools is how many others were called.
	Tools     []ToolTally `json:"tools,omitempty"`
	MoreTools int         `json:"more_tools,omitempty"`
}

// MaxPresence bounds a Presence on the bus, in bytes.
const MaxPresence = 32 << 10

// What a Presence says of circuit breakers.
const (
	SharedBreakers = "shared"
	LocalBreakers  = "local" // the store is away, or there is none: this executor decides alone
)

// others are the executors that live, this one not counted.
type others struct {
	mu   sync.Mutex
	seen map[string]time.Time
}

const (
	present   = time.Second             // how often an executor says that it lives
	absent    = 3500 * time.Millisecond // after what time it does not
	maxOthers = 10_000
)

// meet says that this executor lives, and listens to the others, until ctx ends.
func (gs *gates) meet(ctx context.Context) {
	mine, all := gs.bus.Subjects().Event("executor."+gs.me), gs.bus.Subjects().Event("executor.*")
	sub, err := gs.bus.Subscribe(all, "", func(m *nats.Msg) { gs.greet(m.Subject[len(mine)-len(gs.me):]) })
	if err != nil {
		gs.log.Error("other executors are not heard: this one counts as the only one", "error", err)
	} else {
		defer func() {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = sub.Drain(end) // the connection is gone: then so is the subscription
		}()
	}
	t := time.NewTicker(present)
	defer t.Stop()
	for last := 1; ; {
		if n := gs.live(time.Now()); n != last && gs.resized != nil {
			gs.resized(n)
			last = n
		}
		_ = gs.bus.Publish(mine, nil, gs.presence()) // not connected: then nobody hears us anyway
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

func (gs *gates) presence() []byte {
	p := Presence{Executor: gs.me, Breakers: SharedBreakers}
	if gs.tell != nil {
		gs.tell(time.Now(), &p)
	}
	if gs.away.Load() {
		p.Breakers = LocalBreakers
	}
	b, err := json.Marshal(p)
	if err != nil {
		panic("a presence is words and finite numbers: " + err.Error())
	}
	return b
}

// greet takes note of another executor.
func (gs *gates) greet(id string) {
	if id == gs.me {
		return
	}
	gs.others.mu.Lock()
	defer gs.others.mu.Unlock()
	if _, known := gs.others.seen[id]; known || len(gs.others.seen) < maxOthers {
		gs.others.seen[id] = time.Now()
	}
}

// live is how many executors there are, this one included.
func (gs *gates) live(now time.Time) int {
	gs.others.mu.Lock()
	defer gs.others.mu.Unlock()
	for id, at := range gs.others.seen {
		if now.Sub(at) > absent {
			delete(gs.others.seen, id)
		}
	}
	return 1 + len(gs.others.seen)
}
