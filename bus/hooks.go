package bus

import (
	"slices"
	"sync"
)

// hooks is a list of functions to call. The zero value is empty.
type hooks struct {
	mu   sync.Mutex
	list []*func()
}

func (h *hooks) add(f func()) (remove func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &f
	h.list = append(h.list, p)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.list = slices.DeleteFunc(h.list, func(q *func()) bool { return q == p })
	}
}

func (h *hooks) call() {
	h.mu.Lock()
	list := slices.Clone(h.list)
	h.mu.Unlock()
	for _, f := range list {
		(*f)()
	}
}
