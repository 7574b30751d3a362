package journal

import (
	"errors"
	"fmt"
	"time"

	"github.com/toolbus/toolbus/wire"
)

// run sends pages until the journal is closed and nothing waits. It alone publishes, which is what keeps the order.
func (j *Journal) run() {
	defer close(j.done)
	defer j.tick.Stop()
	for ended := false; !ended; {
		select {
		case <-j.kick:
		case <-j.tick.C:
			j.mu.Lock()
			j.ripen()
			j.mu.Unlock()
		}
		for {
			var due []*page
			if due, ended = j.take(); len(due) == 0 {
				break
			}
			for _, p := range due {
				j.appended(Events, p.began, j.send(p.turn, p.events))
			}
			j.sent(due)
		}
		j.tell(ended)
	}
}

func (j *Journal) take() (due []*page, ended bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	due, j.due = j.due, nil
	return due, j.closed
}

func (j *Journal) sent(pages []*page) {
	for _, p := range pages {
		clear(p.events)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range pages {
		j.held -= p.weight
		if len(j.spare) < maxSpare && cap(p.events) <= 256 {
			*p = page{events: p.events[:0]}
			j.spare = append(j.spare, p)
		}
	}
}

// appended tells whoever wants to know.
func (j *Journal) appended(what What, began time.Time, err error) {
	if j.cfg.Appended != nil {
		j.cfg.Appended(what, time.Since(began), err)
	}
}

// send publishes events in as few messages as they fit into. The error is why some are lost.
func (j *Journal) send(turn string, events []wire.Event) error {
	err := j.publish(turn, events)
	switch {
	case err == nil:
	case !errors.Is(err, errUnfit):
		j.lose(len(events), err)
	case len(events) > 1: // too large, or one of them is illegal
		half := len(events) / 2
		first := j.send(turn, events[:half])
		if err = j.send(turn, events[half:]); err == nil {
			err = first
		}
	default:
		e := &events[0]
		for _, less := range []func(*wire.Event){lessen, strip} {
			less(e)
			if err = j.publish(turn, events); !errors.Is(err, errUnfit) {
				break
			}
		}
		if err != nil {
			j.lose(1, err)
		}
	}
	return err
}

// errUnfit says that fewer events, or less of one, may do.
var errUnfit = errors.New("an event does not fit into a message")

func (j *Journal) publish(turn string, events []wire.Event) error {
	p := &wire.Page{V: wire.Version, Turn: turn, Events: events}
	err := p.Check() // what nobody could read is not written
	var data []byte
	if err == nil {
		data, err = wire.Marshal(wire.MsgPack, p)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUnfit, err)
	}
	if len(data) > j.bus.Inline() {
		return errUnfit
	}
	if f := j.bus.Publish(j.bus.Subjects().Log(turn), nil, data); f != nil {
		return f
	}
	return nil
}

func (j *Journal) lose(n int, why error) {
	j.dropped.Add(uint64(n))
	j.why = why
}

// tell says in the log what was dropped, at most every tellGap.
func (j *Journal) tell(ended bool) {
	n := j.dropped.Load()
	if n == j.told || !ended && time.Since(j.toldAt) < tellGap {
		return
	}
	why := j.why
	if why == nil {
		why = errors.New("they came faster than they could be sent")
	}
	j.cfg.Logger.Warn("events are missing from the journals of turns; the turns themselves go on",
		"events", n-j.told, "error", why)
	j.told, j.toldAt, j.why = n, time.Now(), nil
}
