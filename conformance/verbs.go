package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/toolbus/toolbus/wire"
)

// verbs are the steps that there are; README.md tells what each does.
var verbs map[string]func(*play, order) error

func init() {
	verbs = map[string]func(*play, order) error{
		"call":   (*play).call,
		"ask":    (*play).ask,
		"send":   (*play).send,
		"cancel": (*play).cancel,
		"listen": (*play).listen,
		"expect": (*play).expect,
		"many":   (*play).many,
		"silent": (*play).silent,
		"took":   (*play).took,
		"beat":   (*play).awaitBeat,
		"beats":  (*play).rhythm,
		"gone":   (*play).gone,
		"signal": (*play).signal,
		"exit":   (*play).exit,
		"link":   (*play).cut,
		"wait":   (*play).wait,
	}
}

func has(o order, flag string) bool { return slices.Contains(o.words, flag) }

// payload is the bytes that a step sends.
func (o order) payload() []byte {
	if body, ok := o.options["body"]; ok {
		return []byte(body)
	}
	return []byte(o.json)
}

func (p *play) call(o order) error {
	if len(o.words) < 3 {
		return errors.New("call: expected an inbox and a tool")
	}
	name, tool := o.words[1], o.words[2]
	ref := o.options["ref"]
	if ref == "" {
		ref = name + "/1"
	}
	b, err := p.open(name, o.options["reply"])
	if err != nil {
		return err
	}
	b.call = true
	usual := wire.Header{}
	subject := p.h.subjects.Call(tool)
	if !has(o, "bare") {
		b.ref = p.turn + "/" + ref
		usual[wire.HeaderCall] = []string{b.ref}
		usual[wire.HeaderTimeout] = []string{"10000"}
	}
	if has(o, "own") {
		subject = p.h.subjects.To(p.h.worker)
		usual[wire.HeaderTool] = []string{tool}
	}
	data := o.payload()
	if how, ok := o.options["blob"]; ok {
		check, err := p.checkIn(how, data)
		if err != nil {
			return err
		}
		usual[wire.HeaderBlob], data = []string{check}, nil
	}
	b.sent = time.Now()
	return p.h.publish(subject, b.subject, merge(usual, o.headers()), data)
}

// checkIn stores arguments under a claim check: whole (put), under one that nobody stored (lost), or under one whose digest
// is of something else (other).
func (p *play) checkIn(how string, data []byte) (string, error) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	ref, f := p.h.conn.PutBlob(ctx, data, time.Minute)
	if f != nil {
		return "", f
	}
	switch how {
	case "put":
	case "lost":
		ref.ID = nuid.Next()
	case "other":
		ref.Digest = strings.Repeat("0", len(ref.Digest))
	default:
		return "", fmt.Errorf("blob=%s: expected put, lost or other", how)
	}
	return ref.String(), nil
}

func (p *play) ask(o order) error {
	if len(o.words) < 3 {
		return errors.New("ask: expected an inbox and a subject")
	}
	b, err := p.open(o.words[1], "")
	if err != nil {
		return err
	}
	return p.h.publish(o.words[2], b.subject, o.headers(), o.payload())
}

func (p *play) send(o order) error {
	if len(o.words) < 2 {
		return errors.New("send: expected a subject")
	}
	return p.h.publish(o.words[1], o.options["reply"], o.headers(), o.payload())
}

func (p *play) cancel(o order) error {
	if len(o.words) < 2 {
		return errors.New("cancel: expected the name of a call")
	}
	ref := o.options["ref"]
	if ref == "" {
		ref = o.words[1] + "/1"
	}
	subject := p.h.subjects.To(p.h.worker)
	if tool := o.options["tool"]; tool != "" {
		subject = p.h.subjects.Cancel(tool)
	}
	header := wire.Header{wire.HeaderFrame: {string(wire.Cancel)}, wire.HeaderCall: {p.turn + "/" + ref}}
	return p.h.publish(subject, "", header, nil)
}

func (p *play) listen(o order) error {
	if len(o.words) < 2 {
		return errors.New("listen: expected the name of an inbox")
	}
	subject := ""
	if len(o.words) > 2 {
		subject = o.words[2]
	}
	_, err := p.open(o.words[1], subject)
	return err
}

// next is the next frame of an inbox. An accept that was not asked for is passed over: it depends on how busy the machine is.
func (p *play) next(b *inbox, d time.Duration, wanted []string, peek bool) (frame, bool) {
	end := time.Now().Add(d)
	for {
		f, ok := b.next(time.Until(end), true)
		if ok && f.kind == wire.Accept && !slices.Contains(wanted, string(wire.Accept)) {
			b.next(0, false)
			continue
		}
		if ok && !peek {
			b.next(0, false)
		}
		return f, ok
	}
}

func (p *play) expect(o order) error {
	b, err := p.box(o)
	if err != nil {
		return err
	}
	if len(o.words) < 3 {
		return errors.New("expect: expected an inbox and a frame")
	}
	d, err := o.span("within", patience)
	if err != nil {
		return err
	}
	wanted := strings.Split(o.words[2], "|")
	f, ok := p.next(b, d, wanted, false)
	if !ok {
		return fmt.Errorf("nothing came within %v", d)
	}
	p.note("< %s", f)
	if !slices.Contains(wanted, string(f.kind)) {
		return fmt.Errorf("came %s", f)
	}
	return p.compare(o, f)
}

func (p *play) many(o order) error {
	b, err := p.box(o)
	if err != nil {
		return err
	}
	if len(o.words) < 4 {
		return errors.New("many: expected an inbox, a frame and a range")
	}
	kind := o.words[2]
	n, done, d := 0, 0.0, patience
	if !b.call { // no end will come to it
		p.h.barrier()
		d = 0
	}
	for {
		f, ok := p.next(b, d, []string{kind}, true)
		if !ok || string(f.kind) != kind {
			break
		}
		b.next(0, false)
		n++
		if err := p.compare(o, f); err != nil {
			return err
		}
		var record wire.ProgressRecord
		if f.kind == wire.Progress && wire.Decode(f.data, &record) == nil {
			if record.Done < done {
				return fmt.Errorf("it goes back from %v to %v", done, record.Done)
			}
			done = record.Done
		}
	}
	p.note("< %d of %s", n, kind)
	from, to, err := numbers(o.words[3])
	if err != nil {
		return err
	}
	if n < from || n > to {
		return fmt.Errorf("came %d, want %s", n, o.words[3])
	}
	return nil
}

func numbers(text string) (from, to int, err error) {
	a, b, ok := strings.Cut(text, "..")
	if !ok {
		b = a
	}
	from, err1 := strconv.Atoi(a)
	to, err2 := strconv.Atoi(b)
	return from, to, errors.Join(err1, err2)
}

// silent waits: silence has no signal.
func (p *play) silent(o order) error {
	b, err := p.box(o)
	if err != nil {
		return err
	}
	b.call = false
	p.h.barrier()
	if f, ok := b.next(quiet, false); ok {
		return fmt.Errorf("came %s", f)
	}
	return nil
}

// wait is for what nobody can see, such as the end of a call in a worker that is cut off.
func (p *play) wait(o order) error {
	if len(o.words) < 2 {
		return errors.New("wait: expected a duration")
	}
	d, err := time.ParseDuration(o.words[1])
	if err != nil {
		return err
	}
	select {
	case <-time.After(d):
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

func (p *play) took(o order) error {
	b, err := p.box(o)
	if err != nil {
		return err
	}
	if len(o.words) < 3 {
		return errors.New("took: expected an inbox and a range such as 100ms..2s")
	}
	a, z, _ := strings.Cut(o.words[2], "..")
	from, err1 := time.ParseDuration(a)
	to, err2 := time.ParseDuration(z)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.read == 0 {
		return errors.New("nothing was expected yet")
	}
	if d := b.frames[b.read-1].at.Sub(b.sent); d < from || d > to {
		return fmt.Errorf("it took %v, want %s", d.Round(time.Millisecond), o.words[2])
	}
	return nil
}

// nextBeat waits for the next heartbeat that is news.
func (p *play) nextBeat(end time.Time) (beat, error) {
	over := false
	for {
		p.h.mu.Lock()
		if p.beat < len(p.h.beats) {
			b := p.h.beats[p.beat]
			p.beat++
			p.h.mu.Unlock()
			return b, nil
		}
		p.h.mu.Unlock()
		if over {
			return beat{}, errors.New("no heartbeat came, and the worker has ended")
		}
		select {
		case <-p.h.news:
		case <-p.h.process.done:
			over = true
			if err := p.h.settle(); err != nil {
				return beat{}, err
			}
		case <-time.After(time.Until(end)):
			return beat{}, errors.New("no heartbeat came")
		case <-p.ctx.Done():
			return beat{}, p.ctx.Err()
		}
	}
}

func (p *play) awaitBeat(o order) error {
	d, err := o.span("within", patience)
	if err != nil {
		return err
	}
	want, err := decode([]byte(o.json))
	if err != nil {
		return fmt.Errorf("the pattern is not JSON: %w", err)
	}
	if has(o, "next") {
		p.beat = p.h.beatCount()
	}
	end := time.Now().Add(d)
	last := "nothing"
	for {
		b, err := p.nextBeat(end)
		if err != nil {
			return fmt.Errorf("no such heartbeat within %v; the last was %s", d, last)
		}
		got, err := asValue(b.Heartbeat)
		if err != nil {
			return err
		}
		last = show(got)
		if b.err != nil {
			return fmt.Errorf("a heartbeat breaks its rules: %w: %s", b.err, last)
		}
		m := matcher{vars: p.vars}
		if m.like(want, got) {
			p.note("< heartbeat %s", last)
			return nil
		}
	}
}

// rhythm is heartbeats in a row: their numbers follow each other, and their time is what they say.
func (p *play) rhythm(o order) error {
	if len(o.words) < 2 {
		return errors.New("beats: expected a number")
	}
	n, err := strconv.Atoi(o.words[1])
	if err != nil {
		return err
	}
	var before beat
	for i := range n {
		b, err := p.nextBeat(time.Now().Add(patience))
		switch {
		case err != nil:
			return err
		case b.err != nil:
			return fmt.Errorf("heartbeat %d breaks its rules: %w", i+1, b.err)
		case b.Worker != p.h.worker:
			return fmt.Errorf("heartbeat %d is of %q, want %q", i+1, b.Worker, p.h.worker)
		case b.Seq < 1 || i > 0 && b.Seq != before.Seq+1:
			return fmt.Errorf("heartbeat %d has seq %d after %d: they count from 1, without a hole", i+1, b.Seq, before.Seq)
		case i > 0 && b.at.Sub(before.at) > 2*time.Duration(b.EveryMs)*time.Millisecond:
			return fmt.Errorf("heartbeat %d came %v after the one before, and they say that they come every %d ms",
				i+1, b.at.Sub(before.at).Round(time.Millisecond), b.EveryMs)
		}
		before = b
	}
	return nil
}

// gone waits until nobody listens on a subject.
func (p *play) gone(o order) error {
	if len(o.words) < 2 {
		return errors.New("gone: expected a subject")
	}
	d, err := o.span("within", goneTime)
	if err != nil {
		return err
	}
	header := nats.Header{wire.HeaderFrame: {string(wire.Ping)}}
	if !strings.HasPrefix(o.words[1], p.h.subjects.To("")) {
		header = nil
	}
	for end := time.Now().Add(d); time.Now().Before(end); {
		m := &nats.Msg{Subject: o.words[1], Header: header, Data: []byte("{}")}
		ctx, cancel := context.WithTimeout(p.ctx, askAgain)
		_, err := p.h.nc.RequestMsgWithContext(ctx, m)
		if errors.Is(err, nats.ErrNoResponders) {
			cancel()
			return nil
		}
		<-ctx.Done() // then it is asked again
		cancel()
	}
	return fmt.Errorf("somebody still listens on %s after %v", o.words[1], d)
}

func (p *play) signal(o order) error {
	switch {
	case has(o, "KILL"):
		p.severed = true
		p.h.process.kill()
		return nil
	case has(o, "TERM"):
		return p.h.process.terminate()
	}
	return errors.New("signal: expected TERM or KILL")
}

func (p *play) exit(o order) error {
	if len(o.words) < 2 {
		return errors.New("exit: expected a code")
	}
	d, err := o.span("within", stopTime)
	if err != nil {
		return err
	}
	select {
	case <-p.h.process.done:
	case <-time.After(d):
		return fmt.Errorf("the worker goes on after %v", d)
	}
	if got := strconv.Itoa(p.h.process.code()); got != o.words[1] {
		return fmt.Errorf("the worker ended with %v, want exit code %s", p.h.process.cmd.ProcessState, o.words[1])
	}
	return p.h.settle()
}

func (p *play) cut(o order) error {
	if p.h.link == nil {
		return fmt.Errorf("%w: the server is not ours, so the worker cannot be cut off from it", errSkip)
	}
	switch {
	case has(o, "down"):
		p.h.link.set(true)
	case has(o, "up"):
		p.h.link.set(false)
	default:
		return errors.New("link: expected up or down")
	}
	return nil
}
