package wire

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolbus/toolbus/tool"
)

// Check says everything that is wrong with a heartbeat, or nil: legal names, at most MaxTools tools and none twice,
// counts that are not negative, EveryMs from 10 to 600,000. A State of a later version passes. The error is an *Error.
func (h *Heartbeat) Check() error {
	var p problems
	p.id("worker", h.Worker)
	p.text("state", h.State, 32)
	p.text("sdk", h.SDK, 128)
	p.between("running", int64(h.Running), 0, maxInt)
	p.between("capacity", int64(h.Capacity), 0, maxInt)
	p.between("leaked", int64(h.Leaked), 0, maxInt)
	p.between("every_ms", h.EveryMs, 10, 600_000)
	p.between("seq", h.Seq, 0, maxInt)
	p.count("tools", len(h.Tools), MaxTools)
	ids := names{}
	for i, t := range h.Tools[:min(len(h.Tools), MaxTools)] {
		p.unique(ids, "tools", i, t.ID, tool.CheckName)
		if !isLine(t.Version, 64) || !isLine(t.Digest, 128) {
			p.add("tools[%d]: expected a version of at most 64 bytes and a digest of at most 128", i)
		}
	}
	return p.err()
}

// Check says everything that is wrong with the answer to Describe as a whole, or nil: legal names, at most MaxTools
// manifests and no tool twice. Each manifest has more rules of its own, in package tool. The error is an *Error.
func (d *DescribeRecord) Check() error {
	var p problems
	p.id("worker", d.Worker)
	p.count("manifests", len(d.Manifests), MaxTools)
	ids := names{}
	for i := range d.Manifests[:min(len(d.Manifests), MaxTools)] {
		p.unique(ids, "manifests", i, d.Manifests[i].ID, tool.CheckName)
	}
	return p.err()
}

// names are the ids in a list, and where each stood first.
type names map[string]int

func (p *problems) unique(seen names, list string, i int, id string, check func(string) error) {
	if first, twice := seen[id]; twice {
		p.add("%s[%d].id: %s is also the id of %s[%d]", list, i, quote(id), list, first)
		return
	}
	seen[id] = i
	if err := check(id); err != nil {
		p.add("%s[%d].id: %v", list, i, err)
	}
}

func (p *problems) count(list string, n, max int) {
	if n > max {
		p.add("%s: at most %d are allowed, got %d", list, max, n)
	}
}

func (p *problems) id(field, id string) {
	if err := tool.CheckID(id); err != nil {
		p.add("%s: %v", field, err)
	}
}

func (p *problems) text(field, s string, max int) {
	if !isLine(s, max) {
		p.add("%s: expected one line of at most %d bytes, got %s", field, max, quote(s))
	}
}

func (p *problems) oneOf(field, s string, words ...string) {
	if s != "" && !slices.Contains(words, s) {
		p.add("%s: expected %s, got %s", field, strings.Join(words, " or "), quote(s))
	}
}

func (p *problems) between(field string, n, from, to int64) {
	if n < from || n > to {
		p.add("%s: expected %d to %d, got %d", field, from, to, n)
	}
}

// isLine reports whether s is text that may stand in a header and on a screen: UTF-8 without control characters.
func isLine(s string, max int) bool {
	return len(s) <= max && utf8.ValidString(s) && strings.IndexFunc(s, isControl) < 0
}

func isControl(r rune) bool { return r < ' ' || 0x7f <= r && r < 0xa0 }
