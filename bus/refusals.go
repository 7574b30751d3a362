package bus

import (
	"errors"
	"regexp"
	"sync"

	"github.com/nats-io/nats.go"
)

// refusals remembers which subjects the server refused. The zero value remembers none.
type refusals struct {
	mu sync.Mutex
	by map[string]error
}

const maxRefusals = 256

var refusedSubject = regexp.MustCompile(`(?:Publish|Subscription) to "(\S+)"`)

// subjectOf is the subject that a permission violation is about, or "".
func subjectOf(err error) string {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return ""
	}
	if m := refusedSubject.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	return ""
}

func (r *refusals) add(err error) (subject string) {
	subject = subjectOf(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil || len(r.by) >= maxRefusals {
		r.by = map[string]error{} // forget them all rather than keep an order
	}
	r.by[subject] = err
	return subject
}

func (r *refusals) of(subject string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by[subject]
}
