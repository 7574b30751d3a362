package kvstate

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolbus/toolbus/bus"
)

var (
	// ErrNotFound says that the key is not there, or was deleted.
	ErrNotFound = errors.New("key not found")

	// ErrConflict says that a Create or Update was refused because the key has another revision, or because another write
	// to it was under way. It is no proof that nothing was written: see the package comment.
	ErrConflict = errors.New("another revision stands there, or our own write does: read the key and look")
)

// fail says what b was doing when err happened. Conflicts and missing keys keep their own error; everything else becomes
// a fault.
func (b *Bucket) fail(doing, key string, err error) error {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode {
		case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant:
			err = ErrConflict
		case jetstream.JSErrCodeMessageNotFound:
			err = ErrNotFound
		}
	}
	if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrNotFound) {
		err = bus.Fault(err)
	}
	if key == "" {
		return fmt.Errorf("%s bucket %s: %w", doing, b.name, err)
	}
	return fmt.Errorf("%s %s in bucket %s: %w", doing, key, b.name, err)
}
