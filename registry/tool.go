package registry

import (
	"cmp"
	"slices"
	"strings"

	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// A Tool is what is known of one tool at a moment. It is never changed: the next state is another Tool.
type Tool struct {
	Name string

	// Compiled is the manifest that holds. Nil means that only a digest is known yet.
	Compiled *tool.Compiled

	// Version and Digest are those of Compiled.
	Version string
	Digest  string

	// Workers are those that take its calls now, draining ones left out, sorted by ID. Empty means that it is away.
	Workers []*Instance

	// Conflicts are the other manifests that live workers announce, the best first. Nil where all agree.
	Conflicts []Version
}

// A Version is one manifest of a tool and who runs it.
type Version struct {
	Version string   `json:"version,omitempty"`
	Digest  string   `json:"digest"`
	Workers []string `json:"workers"` // sorted
}

// A form is a manifest that we have, of a tool.
type form struct {
	compiled *tool.Compiled
	digest   string
	rank     uint64 // the higher, the more recently some worker ran it
}

// An entry is one tool of the catalogue.
type entry struct {
	name   string
	forms  map[string]*form // by digest, at most maxForms
	places []place          // live workers that announce it, sorted by worker
	tool   *Tool            // what was last made of all this
	held   string           // the digest that people were last told of
}

// A place is one live worker that announces the tool, and as what.
type place struct {
	worker *worker
	line   wire.ToolLine
}

func (e *entry) find(id string) (int, bool) {
	return slices.BinarySearchFunc(e.places, id, func(p place, id string) int { return cmp.Compare(p.worker.ID, id) })
}

// A claim is one manifest that may hold, and how many workers say so.
type claim struct {
	version string
	digest  string
	workers int
	form    *form // nil where nobody gave it to us yet
}

// claims lists the manifests that live workers announce, or else those that we remember; the one that holds comes first.
func (e *entry) claims() []claim {
	counts := map[string]claim{}
	for _, p := range e.places {
		if !p.worker.Draining() && p.line.Digest != "" {
			c := counts[p.line.Digest]
			counts[p.line.Digest] = claim{p.line.Version, p.line.Digest, c.workers + 1, nil}
		}
	}
	if len(counts) == 0 {
		for _, f := range e.forms {
			counts[f.digest] = claim{digest: f.digest}
		}
	}
	all := make([]claim, 0, len(counts))
	for _, c := range counts {
		if c.form = e.forms[c.digest]; c.form != nil {
			c.version = c.form.compiled.Version // what a beat says of a manifest that we have does not count
		}
		all = append(all, c)
	}
	slices.SortFunc(all, claim.compare)
	return all
}

// compare puts the better claim first: a manifest that is there, the higher version, the one that more workers run, the
// one that was run more recently where nobody does, the smaller digest.
func (c claim) compare(o claim) int {
	if (c.form == nil) != (o.form == nil) {
		if c.form != nil {
			return -1
		}
		return 1
	}
	order := cmp.Or(compareVersions(o.version, c.version), cmp.Compare(o.workers, c.workers))
	if order == 0 && c.workers == 0 && c.form != nil {
		order = cmp.Compare(o.form.rank, c.form.rank)
	}
	return cmp.Or(order, cmp.Compare(c.digest, o.digest))
}

// build makes the Tool of what is known now.
func (e *entry) build() *Tool {
	t := &Tool{Name: e.name}
	for _, p := range e.places {
		if !p.worker.Draining() {
			t.Workers = append(t.Workers, p.worker.Instance)
		}
	}
	claims := e.claims()
	if len(claims) == 0 {
		return t // nobody told what it is
	}
	best := claims[0]
	t.Version, t.Digest = best.version, best.digest
	if best.form != nil {
		t.Compiled = best.form.compiled
	}
	if len(t.Workers) == 0 {
		return t // manifests that nobody runs do not contradict each other
	}
	for _, c := range claims[1:] {
		t.Conflicts = append(t.Conflicts, Version{c.version, c.digest, e.runners(c.digest)})
	}
	return t
}

// runners names the workers that take calls under this digest.
func (e *entry) runners(digest string) []string {
	var ids []string
	for _, p := range e.places {
		if p.line.Digest == digest && !p.worker.Draining() {
			ids = append(ids, p.worker.ID)
		}
	}
	return ids
}

// add keeps f. Where there are too many it drops the one that was not run for the longest time and that nobody runs
// now, and returns it; ok is false where all of them are in use, f being the one too many.
func (e *entry) add(f *form) (dropped *form, ok bool) {
	if len(e.forms) >= maxForms {
		for _, g := range e.forms {
			if !e.used(g.digest) && (dropped == nil || g.rank < dropped.rank) {
				dropped = g
			}
		}
		if dropped == nil {
			return nil, false
		}
		delete(e.forms, dropped.digest)
	}
	e.forms[f.digest] = f
	return dropped, true
}

func (e *entry) used(digest string) bool {
	return slices.ContainsFunc(e.places, func(p place) bool { return p.line.Digest == digest })
}

// fight names the manifests that contradict each other; "" where none do.
func (t *Tool) fight() string {
	if t == nil || len(t.Conflicts) == 0 {
		return ""
	}
	digests := []string{t.Digest}
	for _, v := range t.Conflicts {
		digests = append(digests, v.Digest)
	}
	slices.Sort(digests)
	return strings.Join(digests, " ")
}
