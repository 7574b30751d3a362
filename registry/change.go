package registry

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// A Change is something that happened to the catalogue.
type Change struct {
	Kind      ChangeKind `json:"kind"`
	Worker    string     `json:"worker,omitempty"`
	Tool      string     `json:"tool,omitempty"`
	Version   string     `json:"version,omitempty"` // of the manifest that holds now
	Digest    string     `json:"digest,omitempty"`
	Conflicts []Version  `json:"conflicts,omitempty"` // the manifests that do not
	Because   string     `json:"because,omitempty"`
}

// A ChangeKind says what happened.
type ChangeKind string

// The kinds of a Change.
const (
	WorkerJoined ChangeKind = "worker_joined"
	WorkerLeft   ChangeKind = "worker_left"
	ToolAdded    ChangeKind = "tool_added"    // a manifest of a tool that had none
	ToolChanged  ChangeKind = "tool_changed"  // another manifest holds
	ToolConflict ChangeKind = "tool_conflict" // live workers disagree, or disagree about something else than before
)

// watchers are those who are told of changes.
type watchers struct {
	mu   sync.Mutex
	next int
	list map[int]func(Change)
}

// OnChange has f told of every change from now on, one at a time and in order, on a goroutine of Run, together with
// everybody else who watches: so f may call the registry, and may take its time, but while it does up to 1,024 changes
// wait and what comes then is lost. The returned func takes f out again.
func (r *Registry) OnChange(f func(Change)) (remove func()) {
	w := &r.watchers
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.list == nil {
		w.list = map[int]func(Change){}
	}
	id := w.next
	w.next++
	w.list[id] = f
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.list, id)
	}
}

// tell tells until ctx ends.
func (r *Registry) tell(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-r.changes:
			r.note(c)
			for _, f := range r.watchers.all() {
				f(c)
			}
		}
	}
}

func (w *watchers) all() []func(Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]func(Change), 0, len(w.list))
	for _, id := range slices.Sorted(maps.Keys(w.list)) {
		all = append(all, w.list[id])
	}
	return all
}

// note logs a change.
func (r *Registry) note(c Change) {
	switch c.Kind {
	case WorkerJoined:
		r.log.Debug("worker joined", "worker", c.Worker)
	case WorkerLeft:
		r.log.Info("worker left", "worker", c.Worker, "because", c.Because)
	case ToolAdded, ToolChanged:
		r.log.Info("tool "+strings.TrimPrefix(string(c.Kind), "tool_"), "tool", c.Tool, "version", c.Version, "digest", c.Digest)
	case ToolConflict:
		r.log.Warn("tool has several manifests", "tool", c.Tool, "version", c.Version, "holds", c.Digest, "others", others(c.Conflicts))
	}
}

// others says in short which manifests do not hold; Tools has all of it.
func others(versions []Version) string {
	var words []string
	for _, v := range versions[:min(len(versions), 5)] {
		words = append(words, fmt.Sprintf("%s (version %q, %d workers)", v.Digest, v.Version, len(v.Workers)))
	}
	if more := len(versions) - len(words); more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return strings.Join(words, ", ")
}
