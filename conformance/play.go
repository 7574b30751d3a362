package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nuid"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

// errSkip ends a case that cannot be played here.
var errSkip = errors.New("skipped")

// A play is one case under way.
type play struct {
	h       *house
	s       *script
	result  *Case
	turn    string
	each    string
	vars    map[string]string
	boxes   map[string]*inbox
	order   []*inbox
	beat    int  // heartbeats from this one on are news
	severed bool // the worker was killed or cut off: calls need not end
	notes   strings.Builder
	ctx     context.Context
}

func newPlay(h *house, s *script, result *Case, each string) *play {
	p := &play{h: h, s: s, result: result, each: each, turn: "t" + nuid.Next(), vars: map[string]string{}, boxes: map[string]*inbox{}}
	if !s.fresh {
		p.beat = h.beatCount()
	}
	return p
}

// run plays the steps and then asks for what always holds.
func (p *play) run(ctx context.Context) {
	p.ctx = ctx
	p.result.Status = Passed
	for _, s := range p.s.steps {
		p.note("> %s", s.text)
		err := p.step(s)
		switch {
		case errors.Is(err, errSkip):
			p.result.Status, p.result.Why = Skipped, err.Error()
			return
		case err != nil:
			p.result.fail("%s%s:%d: %s\n%v", p.which(), p.s.file, s.line, s.text, err)
			p.aftermath()
			return
		}
	}
	p.settle()
}

// which says for which of several values the steps are played.
func (p *play) which() string {
	if p.s.each == "" {
		return ""
	}
	return p.s.each + " " + p.each + ": "
}

func (p *play) note(format string, args ...any) { fmt.Fprintf(&p.notes, "    "+format+"\n", args...) }

func (p *play) step(s step) error {
	text, err := expand(s.text, p.value)
	if err != nil {
		return err
	}
	o, err := take(text)
	if err != nil {
		return err
	}
	if p.ctx.Err() != nil {
		return p.ctx.Err()
	}
	return verbs[o.words[0]](p, o)
}

// value is what $name or $name(arg) stands for.
func (p *play) value(name, arg string) (string, bool) {
	s := p.h.subjects
	switch name {
	case "turn":
		return p.turn, true
	case "worker":
		return p.h.worker, true
	case "to":
		return s.To(p.h.worker), true
	case "rollcall":
		return s.Rollcall(), true
	case "call":
		return s.Call(arg), true
	case "cancel":
		return s.Cancel(arg), true
	case "reply":
		return s.Reply(arg, "conformance", nuid.Next()), true
	case "http":
		return strconv.Itoa(fault.Kind(p.each).Spec().HTTP), true
	case "fill":
		n, err := strconv.Atoi(arg)
		if err != nil || n < 0 || n > wire.MaxBlob {
			return "", false
		}
		return strings.Repeat("x", n), true
	case "inbox":
		if b := p.boxes[arg]; b != nil {
			return b.subject, true
		}
		return "", false
	}
	if name == p.s.each {
		return p.each, true
	}
	v, ok := p.vars[name]
	return v, ok
}

// open makes an inbox under a name of the case. A name that is taken is taken over: what came to the old one stays watched.
func (p *play) open(name, subject string) (*inbox, error) {
	b, err := p.h.inbox(name, subject)
	if err != nil {
		return nil, err
	}
	p.boxes[name] = b
	p.order = append(p.order, b)
	return b, nil
}

func (p *play) box(o order) (*inbox, error) {
	if len(o.words) < 2 || p.boxes[o.words[1]] == nil {
		return nil, fmt.Errorf("%s: name an inbox of this case", o.words[0])
	}
	return p.boxes[o.words[1]], nil
}

// settle asks for what always holds, and remembers the case for what comes late.
func (p *play) settle() {
	if !p.severed {
		p.h.barrier()
	}
	if !p.s.fresh && p.h.process.ended() {
		p.result.fail("%sthe worker ended: %v", p.which(), p.h.process.cmd.ProcessState)
	}
	for _, b := range p.order {
		for _, why := range b.wrong(p.h.worker) {
			p.result.fail("%s%s", p.which(), why)
		}
		if b.call && !p.severed && !b.ended() {
			p.result.fail("%s%s: it has no end", p.which(), b.name)
		}
		for _, f := range b.unread() {
			p.result.fail("%s%s: came %s, which nobody expected", p.which(), b.name, f)
		}
		b.settle()
	}
	for _, subject := range p.h.strangers() {
		p.result.fail("%sthe worker published to %s, where it has no business", p.which(), subject)
	}
	p.h.guests = append(p.h.guests, &guest{p.result, p.order})
}

// aftermath leaves the worker as free as it can be after a case that broke off: its calls are cancelled.
func (p *play) aftermath() {
	for _, b := range p.order {
		if b.ref != "" && !b.ended() && p.h.worker != "" {
			header := wire.Header{wire.HeaderFrame: {string(wire.Cancel)}, wire.HeaderCall: {b.ref}}
			_ = p.h.publish(p.h.subjects.To(p.h.worker), "", header, nil)
		}
	}
	p.h.strangers()
}

// compare is what differs between a frame and what is expected of it.
func (p *play) compare(o order, f frame) error {
	var diffs []string
	for name, want := range o.header {
		var got any = absent{}
		if v := wire.Get(f.header, name); v != "" {
			got = v
		}
		m := &matcher{vars: p.vars}
		m.text(name, want, got)
		diffs = append(diffs, m.diffs...)
	}
	if o.json != "" {
		want, err := decode([]byte(o.json))
		if err != nil {
			return fmt.Errorf("the pattern is not JSON: %w", err)
		}
		got, err := p.content(f)
		if err != nil {
			return err
		}
		m := &matcher{exact: (f.kind == wire.Result || f.kind == wire.Partial) && o.options["part"] == "", vars: p.vars}
		m.match("", want, got)
		diffs = append(diffs, m.diffs...)
	}
	if len(diffs) == 0 {
		return nil
	}
	return fmt.Errorf("came %s\n  %s", f, strings.Join(diffs, "\n  "))
}

// content is the payload of a frame, fetched where it stands behind a claim check.
func (p *play) content(f frame) (any, error) {
	text := wire.Get(f.header, wire.HeaderBlob)
	if text == "" {
		v, err := f.value()
		if err != nil {
			return nil, fmt.Errorf("came %s, which cannot be read: %w", f, err)
		}
		return v, nil
	}
	if len(f.data) > 0 {
		return nil, fmt.Errorf("came a claim check and a payload of %d bytes beside it: %s", len(f.data), f)
	}
	ref, err := wire.ParseBlobRef(text)
	if err != nil {
		return nil, fmt.Errorf("came %s: %w", f, err)
	}
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	data, fl := p.h.conn.GetBlob(ctx, ref)
	if fl != nil {
		return nil, fmt.Errorf("came %s: %w", f, fl)
	}
	return decode(data)
}

// span is the option of that name as a duration.
func (o order) span(name string, otherwise time.Duration) (time.Duration, error) {
	v, ok := o.options[name]
	if !ok {
		return otherwise, nil
	}
	return time.ParseDuration(v)
}

func (o order) headers() wire.Header {
	h := wire.Header{}
	for name, v := range o.header {
		h[name] = []string{v}
	}
	return h
}

// merge lays what a step says over what is usual. An empty value takes a header away.
func merge(usual, said wire.Header) wire.Header {
	for name := range said {
		maps.DeleteFunc(usual, func(other string, _ []string) bool { return strings.EqualFold(other, name) })
	}
	maps.Copy(usual, said)
	maps.DeleteFunc(usual, func(_ string, v []string) bool { return v[0] == "" })
	return usual
}
