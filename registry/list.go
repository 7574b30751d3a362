package registry

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/toolbus/toolbus/tool"
)

// A ToolInfo is one line of a list of tools.
type ToolInfo struct {
	Name        string      `json:"name"`
	Version     string      `json:"version,omitempty"`
	Digest      string      `json:"digest,omitempty"`
	Description string      `json:"description,omitempty"`
	Effect      tool.Effect `json:"effect,omitempty"`
	Workers     []string    `json:"workers"`             // that take its calls now, sorted
	Conflicts   []Version   `json:"conflicts,omitempty"` // other manifests that live workers announce
}

// Tools lists what is in the catalogue, by name, tools without workers included.
func (r *Registry) Tools() []ToolInfo {
	tools := *r.tools.Load()
	list := make([]ToolInfo, 0, len(tools))
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		t := tools[name].Load()
		info := ToolInfo{Name: name, Version: t.Version, Digest: t.Digest, Workers: []string{}, Conflicts: t.Conflicts}
		if t.Compiled != nil {
			info.Description, info.Effect = t.Compiled.Manifest.Description, t.Compiled.Manifest.Effect
		}
		for _, w := range t.Workers {
			info.Workers = append(info.Workers, w.ID)
		}
		list = append(list, info)
	}
	return list
}

// Nearest gives up to three names that somebody who wrote name may have meant, the nearest first.
func (r *Registry) Nearest(name string) []string {
	return tool.Nearest(name, slices.Sorted(maps.Keys(*r.tools.Load())), 3)
}

// A WorkerInfo is one line of a list of workers.
type WorkerInfo struct {
	ID       string   `json:"id"`
	SDK      string   `json:"sdk,omitempty"`
	Tools    []string `json:"tools"` // sorted
	Capacity int      `json:"capacity"`
	Running  int      `json:"running"`
	Leaked   int      `json:"leaked,omitempty"`
	Draining bool     `json:"draining,omitempty"`
	SeenMs   int64    `json:"seen_ms"` // how long ago its last heartbeat came, in milliseconds
}

// Workers lists the live workers by ID, draining ones included.
func (r *Registry) Workers() []WorkerInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]WorkerInfo, 0, len(r.cat.workers))
	for _, w := range r.cat.workers {
		info := WorkerInfo{
			ID:       w.ID,
			SDK:      w.SDK,
			Tools:    []string{},
			Capacity: w.Capacity(),
			Running:  w.Running(),
			Leaked:   w.Leaked(),
			Draining: w.Draining(),
			SeenMs:   max(0, time.Since(w.LastSeen()).Milliseconds()),
		}
		for _, l := range w.lines {
			info.Tools = append(info.Tools, l.ID)
		}
		list = append(list, info)
	}
	slices.SortFunc(list, func(a, b WorkerInfo) int { return cmp.Compare(a.ID, b.ID) })
	return list
}
