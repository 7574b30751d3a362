package kvstate

import "context"

// A Store is what shared breakers need of a bucket: *Bucket is one, and a Line of a Memory. Package kvstatetest says what
// each of them must do.
type Store interface {
	// Get reads the key. The error is ErrNotFound where the key is not there. It is the truth of a moment ago at best:
	// only a write that succeeds decides.
	Get(ctx context.Context, key string) (Entry, error)

	// Create writes the key if it is not there, or was deleted. The error is ErrConflict where it is.
	Create(ctx context.Context, key string, value []byte) (rev uint64, err error)

	// Update writes the key if its revision is still rev. The error is ErrConflict where it is not. After any error of
	// Create or Update the value may stand there all the same.
	Update(ctx context.Context, key string, value []byte, rev uint64) (uint64, error)

	// Follow tells f of what stands in the store, and then of each change, until ctx ends: see Bucket.Follow.
	Follow(ctx context.Context, f func(Update)) error
}

var (
	_ Store = (*Bucket)(nil)
	_ Store = (*Line)(nil)
)
