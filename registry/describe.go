package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

const (
	describers   = 4               // questions that are out at once
	describeTime = 2 * time.Second // for each

	// hushTime is how long a worker is left in peace whose answer was of no use.
	hushTime = 30 * time.Second
)

// A question asks one worker to describe itself, because of these tools.
type question struct {
	worker string
	lines  []wire.ToolLine
	done   chan struct{} // closed when it was answered, or was not
}

// manifestOf is what a line asks for: the same manifest may be announced by many workers.
func manifestOf(l wire.ToolLine) wire.ToolLine { return wire.ToolLine{ID: l.ID, Digest: l.Digest} }

// ask puts the question to worker, unless all of it is being asked for already. What cannot be asked now is asked after
// the worker's next beat.
func (r *Registry) ask(worker string, lines []wire.ToolLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := &question{worker: worker, done: make(chan struct{})}
	for _, l := range lines {
		if l = manifestOf(l); r.asked[l] == nil {
			q.lines = append(q.lines, l)
		}
	}
	if len(q.lines) == 0 {
		return
	}
	select {
	case r.questions <- q:
	default:
		return
	}
	for _, l := range q.lines {
		r.asked[l] = q
	}
}

// open lists the questions that are not answered.
func (r *Registry) open() []*question {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*question
	for _, q := range r.asked {
		all = append(all, q)
	}
	return all
}

// describe asks questions until ctx ends.
func (r *Registry) describe(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-r.questions:
			r.put(ctx, q)
		}
	}
}

func (r *Registry) put(ctx context.Context, q *question) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, l := range q.lines {
			delete(r.asked, l)
		}
		close(q.done)
	}()
	ctx, cancel := context.WithTimeout(ctx, describeTime)
	defer cancel()
	h := wire.Header{wire.HeaderFrame: {string(wire.Describe)}}
	frame, fault := r.bus.Request(ctx, r.bus.Subjects().To(q.worker), q.lines[0].ID, h, nil)
	if fault != nil {
		r.log.Debug("worker did not describe itself; it is asked again after its next beat", "worker", q.worker, "error", fault)
		return
	}
	if frame.NoResponders {
		r.log.Debug("worker does not listen on its subject; it is asked again after its next beat", "worker", q.worker)
		return
	}
	err := r.learn(q, frame.Kind, frame.Data)
	if err == nil {
		return
	}
	r.complain("manifests refused; the worker is asked again in 30 s", fmt.Errorf("worker %s: %w", q.worker, err))
	r.mu.Lock()
	r.cat.hush(q.worker, time.Now().Add(hushTime))
	r.mu.Unlock()
}

// learn takes an answer in. What the worker did not announce is not looked at.
func (r *Registry) learn(q *question, kind wire.Frame, data []byte) error {
	if kind != wire.Manifests {
		return fmt.Errorf("answered %.40q to %s, want %s", kind, wire.Describe, wire.Manifests)
	}
	var rec wire.DescribeRecord
	if err := wire.Decode(data, &rec); err != nil {
		return err
	}
	if err := rec.Check(); err != nil {
		return err
	}
	manifests := map[string]tool.Manifest{}
	for _, m := range rec.Manifests {
		manifests[m.ID] = m
	}
	var wrong []error
	for _, l := range q.lines {
		m, ok := manifests[l.ID]
		if !ok {
			wrong = append(wrong, fmt.Errorf("tool %s: announced, but there is no manifest of it", l.ID))
			continue
		}
		f, err := newForm(m)
		if err == nil && f.digest != l.Digest {
			err = fmt.Errorf("tool %s: manifest has digest %s, want %.100q as announced", l.ID, f.digest, l.Digest)
		}
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		if !r.take(f) {
			continue
		}
		r.keep.add(f)
		if r.advise {
			for _, w := range f.compiled.Warnings() {
				r.log.Warn(w, "tool", f.compiled.ID, "version", f.compiled.Version)
			}
		}
	}
	switch len(wrong) {
	case 0:
		return nil
	case 1:
		return wrong[0]
	}
	return fmt.Errorf("%w; and %d more tools", wrong[0], len(wrong)-1)
}

// newForm compiles a manifest.
func newForm(m tool.Manifest) (*form, error) {
	compiled, err := tool.Compile(m)
	if err != nil {
		return nil, fmt.Errorf("tool %s: %w", m.ID, err)
	}
	return &form{compiled: compiled, digest: compiled.Digest()}, nil
}

// take puts a manifest into the catalogue, and says whether it is new.
func (r *Registry) take(f *form) (isNew bool) {
	r.step(func(c *catalogue) delta {
		var d delta
		d, isNew = c.learn(f)
		return d
	})
	return isNew
}
