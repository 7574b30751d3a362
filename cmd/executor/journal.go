package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/journal"
)

// lastPages is how long an end waits for what is still to be sent.
const lastPages = 3 * time.Second

// A keeper is the journal of this process.
type keeper struct {
	*journal.Journal
	log      *slog.Logger
	supplied func() // ends whoever makes its streams
}

func (p *program) journal(c *bus.Conn, memory bool) *keeper {
	return &keeper{log: p.log, Journal: journal.New(journal.Config{
		Bus: c, Memory: memory, Retention: p.cfg.Journal.Retention, Content: p.cfg.Journal.Content, LateFor: p.cfg.Late.Retention,
		Logger: p.log, Appended: p.look.appended(),
	})}
}

// close sends what waits.
func (k *keeper) close() {
	k.supplied()
	end, cancel := context.WithTimeout(context.Background(), lastPages)
	defer cancel()
	if err := k.Close(end); err != nil {
		k.log.Warn("the last events of turns may not be in their journals", "why", err)
	}
}
