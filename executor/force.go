package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/wire"
)

// ForceBreaker puts a shared breaker into a state, for all executors: see breaker.Seen.Force. Key is the tool's name.
// Nonce names the write and is used once. It goes on until its word stands there, or ctx ends.
func ForceBreaker(ctx context.Context, b kvstate.Store, key string, state breaker.State, who, why string, lasts time.Duration, nonce string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		v, rev, err := readBreaker(ctx, b, key)
		if err != nil {
			return fmt.Errorf("breaker of %s: %w", key, err)
		}
		if v.Nonce == nonce {
			return nil
		}
		seen := (&breaker.Seen{}).Next(time.Now(), v, rev)
		next, _ := seen.Force(state, who, why, lasts, nonce)
		body, err := wire.Marshal(wire.MsgPack, &next)
		if err != nil {
			return fmt.Errorf("breaker of %s: %w", key, err)
		}
		if rev == 0 {
			_, err = b.Create(ctx, key, body)
		} else {
			_, err = b.Update(ctx, key, body, rev)
		}
		if err == nil {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("breaker of %s: %w", key, err)
		}
	}
}

// readBreaker is what stands in the store, repaired where it makes no sense; revision 0 is nothing.
func readBreaker(ctx context.Context, b kvstate.Store, key string) (breaker.Shared, uint64, error) {
	e, err := b.Get(ctx, key)
	if errors.Is(err, kvstate.ErrNotFound) {
		return breaker.Shared{State: breaker.Closed.String()}, 0, nil
	}
	if err != nil {
		return breaker.Shared{}, 0, err
	}
	v, _ := BreakerOf(e) // what is written now is sane
	return v, e.Revision, nil
}

// BreakerOf is the breaker that an entry of the store holds, repaired where it makes no sense, and what was wrong with it.
// One that cannot be read is closed.
func BreakerOf(e kvstate.Entry) (breaker.Shared, error) {
	var v breaker.Shared
	if err := wire.Decode(e.Value, &v); err != nil {
		return breaker.Shared{V: breaker.SharedVersion, State: breaker.Closed.String()}, err
	}
	return v.Sane()
}
