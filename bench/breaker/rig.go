package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// A rig is some replicas with one shared breaker between callers and a backend.
type rig interface {
	// call makes one call through the breaker of a replica. Key tells breakers of one rig apart.
	call(ctx context.Context, replica int, key string) said
	// recorded is how many failures stand in the shared record, once it has come to rest.
	recorded(ctx context.Context, key string) (int, error)
	// lose takes the record of a breaker out of the store.
	lose(ctx context.Context, key string) error
	close()
}

// outages are what a rig's store can suffer: each has a name, and begins when it is called.
type outages interface{ outages() []outage }

type outage struct {
	name       string
	begin, end func() error
}

// A spec is what a rig is made of.
type spec struct {
	replicas  int
	threshold int
	openFor   time.Duration
	backend   *backend
}

// A maker makes rigs of one kind.
type maker struct {
	name string
	make func(context.Context, spec) (rig, error) // nil: not here
}

// said is what a caller was told.
type said struct {
	ok      bool
	refused bool // by the breaker
	err     error
}

var errDown = errors.New("the backend is down")

// A backend is what the calls are for. Its counts are the truth that breakers are measured by.
type backend struct {
	sick     atomic.Bool
	takes    time.Duration
	ran      atomic.Int64
	at, most atomic.Int64
}

func (b *backend) serve() error {
	b.ran.Add(1)
	n := b.at.Add(1)
	defer b.at.Add(-1)
	for m := b.most.Load(); n > m && !b.most.CompareAndSwap(m, n); {
		m = b.most.Load()
	}
	if b.takes > 0 {
		time.Sleep(b.takes)
	}
	if b.sick.Load() {
		return errDown
	}
	return nil
}

// spread is the median of some whole numbers, and where they differ the smallest and the largest.
func spread(all []int64) string {
	slices.Sort(all)
	least, most := all[0], all[len(all)-1]
	if least == most {
		return fmt.Sprint(least)
	}
	return fmt.Sprintf("%d (%d–%d)", all[len(all)/2], least, most)
}

// at is the value below which so many percent of all lie. It sorts them.
func at(percent float64, all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[min(int(percent/100*float64(len(all))), len(all)-1)]
}
