package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/journal"
)

// A keeper is the journal of this process, and whoever makes its streams.
type keeper struct {
	*journal.Journal
	log    *slog.Logger
	stop   context.CancelFunc
	ensure chan struct{} // closed when nobody tries to make the streams any more
}

const (
	ensureFirst = 3 * time.Second // how long a start waits for the streams
	ensureAgain = 5 * time.Second // between two tries to make them
	lastPages   = 3 * time.Second // how long an end waits for what is still to be sent
)

// keep starts the journal. Where its streams cannot be made, turns run without one until they can.
func (p *program) keep(ctx context.Context, c *bus.Conn, memory bool) *keeper {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	k := &keeper{log: p.log, stop: stop, ensure: make(chan struct{}), Journal: journal.New(journal.Config{
		Bus: c, Memory: memory, Retention: p.cfg.Journal.Retention, Content: p.cfg.Journal.Content, LateFor: p.cfg.Late.Retention,
		Logger: p.log,
	})}
	first, cancel := context.WithTimeout(ctx, ensureFirst)
	defer cancel()
	err := k.Ensure(first)
	if err == nil {
		close(k.ensure)
		return k
	}
	p.log.Warn("turns leave no journal, and late results are not kept, until its streams can be made", "why", err)
	go func() {
		defer close(k.ensure)
		t := time.NewTicker(ensureAgain)
		defer t.Stop()
		for {
			select {
			case <-t.C:
			case <-ctx.Done():
				return
			}
			if err := k.Ensure(ctx); err == nil {
				p.log.Info("turns are journalled")
				return
			}
		}
	}()
	return k
}

// close sends what waits.
func (k *keeper) close() {
	k.stop()
	<-k.ensure
	end, cancel := context.WithTimeout(context.Background(), lastPages)
	defer cancel()
	if err := k.Close(end); err != nil {
		k.log.Warn("the last events of turns may not be in their journals", "why", err)
	}
}
