package modelcheck

import (
	"fmt"
	"hash/maphash"
	"time"

	"github.com/toolbus/toolbus/breaker"
)

// The protocol of the shared breaker, as the executors run it. What a value becomes, what is seen of it, what is folded
// and what became of a write is decided by package breaker itself; here is only what surrounds it: a store, a feed that
// lags, answers that get lost, clocks, crashes, and a tool that is well or not.
//
// Revisions and nonces are compared, never counted with. So each state numbers those that occur in it anew, and there are
// finitely many states though there is no last epoch. Times are two: a length has passed at an executor, or has not.

const (
	threshold = 2 // failures that open
	maxOuts   = 4 // outcomes that an executor holds at once
)

// A variant is one protocol: what it does otherwise than the one that ships, and how far to go.
type variant struct {
	blind     bool // V0: GET, then SET of what was read plus one
	sideLease bool // V1, V2: the right to a probe is another key
	early     bool // V1, V3: a lease may end while its holder's probe runs
	noFence   bool // V4: results count whatever epoch they were admitted in
	naive     bool // V6: a conflict is taken as proof that nothing was written
	topOnly   bool // V7: of the nonces only the latest is looked at, and a write is sent anew with another

	replicas, probes, successes int
	flips, faults, crashes      uint8
	held                        uint8 // outcomes held before no call is let through
	alike                       bool  // executors may change places: fewer states, and traces that are hard to read
}

func (v *variant) policy() breaker.Policy {
	return breaker.Policy{FailureThreshold: threshold, SuccessThreshold: v.successes, OpenFor: time.Minute, Probes: v.probes, ProbeLease: time.Minute}
}

// A value is a breaker.Shared with numbers for revisions and nonces.
type value struct {
	state          breaker.State
	first          bool
	epoch          uint8
	failures, wins uint8
	nonce          uint8
	grants         [2]uint8 // 0: none
	past           [8]uint8 // 0: none
}

// A view is what an executor sees.
type view struct {
	v    value
	rev  uint8
	aged uint8 // bit 0: the open time has passed, or the lease of grants[0]; bit 1: that of grants[1]
}

// Outcomes that wait to be written, oldest first, four bits each: one that says that there is one, and these.
const (
	there  = 1
	failed = 2
	stored = 4 // it is in the store already
	stale  = 8 // of an epoch that had ended
)

// A call is what an executor runs.
type call struct {
	kind  uint8
	epoch uint8
	nonce uint8 // of a probe's grant
}

const (
	idle uint8 = iota
	plain
	probe
	ended // a probe that was not settled yet; what follows is ended+outcome
)

// A write is one whose answer was lost, or was a conflict.
type write struct {
	kind    uint8 // 0: none
	v       value
	base    uint8 // the revision that it is to replace
	before  uint8 // and its nonce
	fold    uint16
	epoch   uint8 // of fold
	outs    uint16
	settles uint8 // the nonce of the grant
	flying  bool  // it may yet reach the store
	landed  bool  // it did
	late    bool  // the lease of the grant that it takes is over
	orphan  bool  // who sent it is dead
}

const (
	folds uint8 = iota + 1
	asks
	settles
)

type replica struct {
	view  view
	call  call
	fold  uint16 // number of a breaker.Fold
	epoch uint8  // its epoch
	outs  uint16
	write write
}

type state struct {
	cur     value
	rev     uint8
	up      bool
	flips   uint8
	faults  uint8
	crashes uint8
	run     uint8 // failures in a row that the store has seen in this epoch
	lease   uint8 // side lease: its holder, from 1
	r       [3]replica
}

// A protocol makes steps. It is not safe for concurrent use.
type protocol struct {
	variant
	p      breaker.Policy
	folds  []breaker.Fold // those that occurred, without their epochs
	number map[breaker.Fold]uint16
}

func newProtocol(v variant) *protocol {
	if v.held == 0 {
		v.held = 2
	}
	return &protocol{variant: v, p: v.policy(), folds: []breaker.Fold{{}}, number: map[breaker.Fold]uint16{{}: 0}}
}

func (m *protocol) model() Model[state] {
	return Model[state]{
		Start:   state{up: true, flips: m.flips, faults: m.faults, crashes: m.crashes},
		Next:    m.next,
		Goal:    func(s state) bool { return s.up && s.cur.state == breaker.Closed },
		Counted: nil,
		Show:    show,
	}
}

func show(s state) string {
	out := fmt.Sprintf("%s@%d failures=%d", s.cur.state, s.rev, s.cur.failures)
	for _, r := range s.r {
		if r.call.kind == probe {
			out += " probe"
		}
	}
	return out
}

// Clocks: what has passed began an hour ago, what has not begins now.
var (
	now   = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	since = now.Add(-time.Hour)
)

// names are nonces as strings.
var names = func() (n [256]string) {
	for i := 1; i < len(n); i++ {
		n[i] = string([]byte{byte(i)})
	}
	return n
}()

func (v *value) shared() breaker.Shared {
	s := breaker.Shared{
		V: breaker.SharedVersion, State: v.state.String(), First: v.first, Epoch: uint64(v.epoch),
		Failures: int(v.failures), Successes: int(v.wins), Nonce: names[v.nonce],
	}
	if v.state == breaker.Open {
		s.HoldMs = time.Minute.Milliseconds()
	}
	for _, g := range v.grants {
		if g != 0 {
			s.Probes = append(s.Probes, breaker.Grant{Nonce: names[g], LeaseMs: time.Minute.Milliseconds()})
		}
	}
	for i, n := range v.past {
		if n == 0 {
			break
		}
		if i == 0 {
			s.Past = make([]string, 0, len(v.past))
		}
		s.Past = append(s.Past, names[n])
	}
	return s
}

func valueOf(s breaker.Shared) value {
	state, _ := breaker.ParseState(s.State)
	v := value{
		state: state, first: s.First, epoch: uint8(s.Epoch), failures: uint8(s.Failures), wins: uint8(s.Successes), nonce: s.Nonce[0],
	}
	for i, g := range s.Probes {
		v.grants[i] = g.Nonce[0]
	}
	for i, n := range s.Past {
		v.past[i] = n[0]
	}
	return v
}

func (v *value) epochAt(rev uint8) uint8 {
	switch {
	case v.first:
		return 0
	case v.epoch != 0:
		return v.epoch
	}
	return rev
}

func (v *value) holds(nonce uint8) bool {
	return nonce != 0 && v.state == breaker.HalfOpen && (v.grants[0] == nonce || v.grants[1] == nonce)
}

// seen is the breaker.Seen that a view stands for.
func (w *view) seen() *breaker.Seen {
	s := &breaker.Seen{}
	if w.rev == 0 {
		return s
	}
	full := w.v.shared()
	if w.v.state != breaker.HalfOpen {
		if w.aged != 0 {
			return s.Next(since, full, uint64(w.rev))
		}
		return s.Next(now, full, uint64(w.rev))
	}
	old := full
	old.Probes = nil
	for i, g := range full.Probes {
		if w.aged&(1<<i) != 0 {
			old.Probes = append(old.Probes, g)
		}
	}
	return s.Next(since, old, uint64(w.rev)).Next(now, full, uint64(w.rev))
}

// sees is the view once v stands at rev: what had passed is asked of the code itself.
func (m *protocol) sees(w view, v value, rev uint8) view {
	next := v.shared()
	s := w.seen().Next(now, next, uint64(rev))
	n := view{v: v, rev: rev}
	switch v.state {
	case breaker.Open:
		if s.Admit(now, m.p, 0) == breaker.Ask {
			n.aged = 1
		}
	case breaker.HalfOpen:
		one := m.p
		one.Probes = 1
		for i, g := range next.Probes {
			alone := next
			alone.Probes = []breaker.Grant{g}
			if s.Next(now, alone, uint64(rev)).Admit(now, one, 0) == breaker.Ask {
				n.aged |= 1 << i
			}
		}
	}
	return n
}

func (m *protocol) foldOf(number uint16, epoch uint8) breaker.Fold {
	f := m.folds[number]
	f.Epoch = uint64(epoch)
	return f
}

func (m *protocol) keep(f breaker.Fold) (uint16, uint8) {
	epoch := uint8(f.Epoch)
	f.Epoch = 0
	n, ok := m.number[f]
	if !ok {
		n = uint16(len(m.folds))
		m.folds, m.number[f] = append(m.folds, f), n
	}
	return n, epoch
}

func count(outs uint16) (n uint8) {
	for ; outs != 0; outs >>= 4 {
		n++
	}
	return n
}

func then(first, second uint16) uint16 { return first | second<<(4*count(first)) }

// A stepper makes the steps from one state.
type stepper struct {
	m    *protocol
	s    state
	step func(state, Label, bool, string)
}

func (m *protocol) next(s state, step func(state, Label, bool, string)) {
	x := &stepper{m, s, step}
	if s.up && s.flips > 0 {
		t := s
		t.up, t.flips = false, s.flips-1
		x.emit(t, -1, "the tool falls ill", false, "")
	}
	if !s.up {
		t := s
		t.up = true
		x.emit(t, -1, "the tool is well again", true, "")
	}
	for i := range m.replicas {
		x.time(i)
		x.hear(i)
		x.call(i)
		x.write(i)
		x.crash(i)
	}
}

// emit canonises the state and looks for what must never be.
func (x *stepper) emit(t state, who int, what string, fair bool, broken string) {
	if broken == "" {
		var running, old int
		for i := range t.r {
			if c := t.r[i].call; c.kind == probe {
				if x.m.sideLease || x.m.blind || c.epoch == t.cur.epochAt(t.rev) {
					running++
				} else {
					old++
				}
			}
		}
		if running > x.m.probes || x.m.probes == 1 && running+old > 1 {
			broken = tooMany
		}
	}
	t.canon(x.m)
	x.step(t, Label{who, what}, fair, broken)
}

// What must never be.
const (
	tooMany  = "more probes at once than allowed"
	window   = "a probe in a window that has ended"
	backward = "an epoch goes back"
	lostTrip = "a trip is lost"
	noReason = "it opens without a reason"
	twice    = "an outcome is counted twice"
	believed = "taken as written, and was not"
	leaked   = "a grant is leaked"
	fenced   = "a result of an ended epoch changes something"
	unsure   = "nobody knows what became of a write"
	nothing  = "a call may ask, and there is nothing to take"
)

// time passes at an executor.
func (x *stepper) time(i int) {
	t := x.s
	w := &t.r[i].view
	switch w.v.state {
	case breaker.Open:
		if w.aged == 0 {
			w.aged = 1
			x.emit(t, i, "the open time has passed", true, "")
		}
	case breaker.HalfOpen:
		for k, g := range w.v.grants {
			if g == 0 || w.aged&(1<<k) != 0 || !x.m.early && x.runs(g) {
				continue
			}
			t := x.s
			t.r[i].view.aged |= 1 << k
			for j := range t.r {
				if wr := &t.r[j].write; wr.kind == asks && wr.v.nonce == g {
					wr.late = !x.m.early
				}
			}
			x.emit(t, i, "a lease is over", true, "")
		}
	}
	if h := x.s.lease; i == 0 && h != 0 {
		if c := x.s.r[h-1].call; x.m.early || c.kind != probe {
			t := x.s
			t.lease = 0
			x.emit(t, -1, "the store lets the side lease end", true, "")
		}
	}
}

// runs says that the probe of a grant runs: its deadline, measured from before it was taken, has not come.
func (x *stepper) runs(nonce uint8) bool {
	for _, r := range x.s.r {
		if r.call.kind == probe && r.call.nonce == nonce {
			return true
		}
	}
	return false
}

// hear is the feed: some values perhaps skipped, the last one always.
func (x *stepper) hear(i int) {
	if x.s.rev <= x.s.r[i].view.rev || x.m.blind {
		return
	}
	t := x.s
	broken := x.m.look(&t, i)
	x.emit(t, i, "hears of it", true, broken)
}

// look has executor i see what stands.
func (m *protocol) look(t *state, i int) (broken string) {
	w := t.r[i].view
	if t.rev <= w.rev {
		return ""
	}
	t.r[i].view = m.sees(w, t.cur, t.rev)
	if w.rev != 0 && t.cur.epochAt(t.rev) < w.v.epochAt(w.rev) {
		return backward
	}
	return ""
}

// call lets calls through and ends them.
func (x *stepper) call(i int) {
	m, r := x.m, &x.s.r[i]
	switch r.call.kind {
	case idle:
		x.admit(i)
	case plain:
		t := x.s
		c := t.r[i].call
		t.r[i].call = call{}
		x.emit(t, i, "the call is cancelled", true, "")
		what := m.report(&t.r[i], c, x.s.up)
		x.emit(t, i, what, true, "")
	case probe:
		for _, o := range []breaker.Outcome{breaker.Neutral, breaker.Success, breaker.Failure} {
			if o == breaker.Success && !x.s.up || o == breaker.Failure && x.s.up {
				continue
			}
			t := x.s
			t.r[i].call.kind = ended + uint8(o)
			x.emit(t, i, "the probe ends: "+o.String(), true, "")
		}
	}
}

// report takes one outcome in, as gate.report does.
func (m *protocol) report(r *replica, c call, ok bool) string {
	o, bits, what := breaker.Failure, uint16(there|failed), "the call fails"
	if ok {
		o, bits, what = breaker.Success, there, "the call succeeds"
	}
	s := r.view.seen()
	if uint64(c.epoch) != s.Epoch() {
		if !m.noFence {
			return what + ", of an ended epoch"
		}
		bits |= stale
	}
	if ok && s.Settled() && s.Clean() && r.outs == 0 && r.write.kind == 0 {
		return what + ", which resets nothing"
	}
	f := m.foldOf(r.fold, r.epoch)
	if f.Epoch != s.Epoch() {
		r.outs = 0
	}
	f.Add(s, m.p, breaker.Report{Outcome: o}, "")
	r.fold, r.epoch = m.keep(f)
	r.outs = then(r.outs, bits)
	return what
}

func (x *stepper) admit(i int) {
	m, t := x.m, x.s
	r := &t.r[i]
	if r.write.kind == asks || count(r.outs)+count(r.write.outs) >= m.held {
		return
	}
	if m.blind && t.rev > 0 {
		r.view = m.sees(r.view, t.cur, t.rev) // GET
	}
	s := r.view.seen()
	switch s.Admit(now, m.p, 0) {
	case breaker.Pass:
		r.call = call{kind: plain, epoch: uint8(s.Epoch())}
		x.emit(t, i, "a call is let through", true, "")
	case breaker.Ask:
		x.ask(t, i, s)
	}
}

func (x *stepper) ask(t state, i int, s *breaker.Seen) {
	m, r := x.m, &t.r[i]
	if m.sideLease {
		if t.lease == 0 && r.write.kind == 0 {
			t.lease, r.call = uint8(i+1), call{kind: probe, epoch: uint8(s.Epoch())}
			broken := ""
			if r.call.epoch != t.cur.epochAt(t.rev) {
				broken = window
			}
			x.emit(t, i, "creates the side lease, probes", true, broken)
		}
		return
	}
	if r.write.kind != 0 {
		return
	}
	n := t.fresh()
	v, _, isProbe, ok := s.Take(now, m.p, "", names[n])
	if !ok || !isProbe {
		x.emit(t, i, "asks", true, nothing)
		return
	}
	if m.blind { // it takes the probe in its own copy, and writes that when the probe has ended
		r.view.v, r.view.aged = valueOf(v), 0
		r.call = call{kind: probe, epoch: r.view.rev, nonce: n}
		x.emit(t, i, "probes", true, "")
		return
	}
	x.send(t, i, write{kind: asks, v: valueOf(v), base: r.view.rev, before: r.view.v.nonce}, "takes a probe")
}

// write is what the writer of an executor does next.
func (x *stepper) write(i int) {
	m, t := x.m, x.s
	r := &t.r[i]
	w := r.write
	switch {
	case w.orphan:
		x.orphan(i)
		return
	case w.kind != 0:
		if w.flying && t.rev == w.base {
			x.land(t, i)
		}
		x.resolve(i)
		return
	case r.call.kind >= ended:
		x.settle(i)
	}
	if r.outs == 0 {
		return
	}
	s, f := r.view.seen(), m.foldOf(r.fold, r.epoch)
	if !f.Says(s) {
		r.outs, r.fold, r.epoch = 0, 0, 0
		x.emit(t, i, "has nothing to say", true, "")
		return
	}
	v, _, ok := s.Apply(now, m.p, f, names[0], m.replicas, names[t.fresh()])
	wr := write{kind: folds, fold: r.fold, epoch: r.epoch, outs: r.outs, base: r.view.rev, before: r.view.v.nonce}
	r.outs, r.fold, r.epoch = 0, 0, 0
	if !ok {
		x.emit(t, i, "has nothing to say", true, "")
		return
	}
	wr.v = valueOf(v)
	x.send(t, i, wr, "writes outcomes")
}

func (x *stepper) settle(i int) {
	m, t := x.m, x.s
	r := &t.r[i]
	s, o, held := r.view.seen(), breaker.Outcome(r.call.kind-ended), names[r.call.nonce]
	if m.sideLease {
		x.settleSide(i, o)
		return
	}
	if m.noFence && !s.Holds(held) && s.State() == breaker.HalfOpen && len(s.Value.Probes) > 0 {
		held = s.Value.Probes[0].Nonce // whose it is was not asked
	}
	v, _, ok := s.Settle(m.p, o, held, names[t.fresh()])
	if !ok {
		r.call = call{}
		x.emit(t, i, "the grant does not stand any more", true, "")
		return
	}
	x.send(t, i, write{kind: settles, v: valueOf(v), base: r.view.rev, before: r.view.v.nonce, settles: r.call.nonce}, "writes how the probe ended")
}

// settleSide writes the result of a probe whose grant was another key: the record is open still, and what follows is
// written as though the probe had been taken just now.
func (x *stepper) settleSide(i int, o breaker.Outcome) {
	m, t := x.m, x.s
	r := &t.r[i]
	if t.lease == uint8(i+1) {
		t.lease = 0
	}
	c := r.call
	r.call = call{}
	if t.rev != r.view.rev || c.epoch != t.cur.epochAt(t.rev) || t.cur.state != breaker.Open {
		x.emit(t, i, "a result of an ended window is dropped", true, "")
		return
	}
	taken, _, _, ok := r.view.seen().Take(now, m.p, "", names[t.fresh()])
	if !ok {
		x.emit(t, i, "lets the side lease go", true, "")
		return
	}
	one := m.p
	one.SuccessThreshold = 1
	v, _, _ := (&breaker.Seen{}).Next(now, taken, uint64(t.rev+1)).Settle(one, o, taken.Nonce, taken.Nonce)
	if o == breaker.Neutral {
		x.emit(t, i, "lets the side lease go", true, "")
		return
	}
	x.send(t, i, write{kind: settles, v: valueOf(v), base: r.view.rev, before: r.view.v.nonce}, "writes how the probe ended")
}

// send puts a write on its way. In most cases the answer comes at once.
func (x *stepper) send(t state, i int, w write, what string) {
	m := x.m
	if t.rev == w.base || m.blind {
		u := t
		broken := m.store(&u, i, w)
		w.landed = true
		u.r[i].view = m.sees(u.r[i].view, u.cur, u.rev)
		x.wrote(u, i, w, what, broken)
	} else {
		x.refused(t, i, w, what+": conflict")
	}
	if t.faults == 0 || m.blind || m.sideLease {
		return
	}
	u := t
	u.faults--
	w.landed, w.flying = false, true
	if t.rev == w.base {
		u.r[i].write = w
		x.emit(u, i, what+": no answer, and it may yet come", false, "")
		broken := m.store(&u, i, w)
		w.landed, w.flying, w.outs = true, false, written(w.outs)
		if m.naive {
			u.r[i].write = write{}
			x.unwritten(u, i, w, what+": conflict, though it was written", false, broken)
			return
		}
		u.r[i].write = w
		x.emit(u, i, what+": written, but the answer is lost or a conflict", false, broken)
	}
}

// refused is an honest conflict.
func (x *stepper) refused(t state, i int, w write, what string) {
	if x.m.naive || x.m.sideLease {
		t.r[i].write = write{}
		x.unwritten(t, i, w, what, true, "")
		return
	}
	if x.m.topOnly {
		t.r[i].write = w
		x.emit(t, i, what, true, "")
		return
	}
	// It looks at once: to do so later is as though the write had come later.
	broken := x.m.look(&t, i)
	if fate := t.r[i].view.seen().Fate(names[w.v.nonce], names[w.before]); fate != breaker.Missed && broken == "" {
		broken = unsure
	}
	t.r[i].write = write{}
	x.unwritten(t, i, w, what, true, broken)
}

// store is the write in the store, and what that means.
func (m *protocol) store(t *state, i int, w write) (broken string) {
	epoch, was := t.cur.epochAt(t.rev), t.cur
	t.cur, t.rev = w.v, t.rev+1
	for k := 0; w.kind == folds && w.outs>>(4*k) != 0; k++ {
		o := w.outs >> (4 * k)
		if o&stored != 0 {
			broken = twice
		}
		if o&stale != 0 {
			broken = fenced
		}
	}
	if w.kind == settles && !m.sideLease && !m.blind && !was.holds(w.settles) {
		broken = fenced
	}
	if m.blind && t.cur.epochAt(t.rev) < epoch {
		broken = backward
	}
	tripped := false
	if was.state == breaker.Closed && w.kind == folds {
		for outs := w.outs; outs != 0; outs >>= 4 {
			t.run++
			if outs&failed == 0 {
				t.run = 0
			}
			tripped = tripped || t.run >= threshold
		}
		switch {
		case tripped && t.cur.state == breaker.Closed && broken == "":
			broken = lostTrip
		case !tripped && t.cur.state == breaker.Open && broken == "":
			broken = noReason
		}
	}
	if t.cur.epochAt(t.rev) != epoch {
		t.run = 0
	}
	return broken
}

func written(outs uint16) uint16 {
	for k := 0; outs>>(4*k) != 0; k++ {
		outs |= stored << (4 * k)
	}
	return outs
}

// land has a write arrive of which nobody has heard.
func (x *stepper) land(t state, i int) {
	w := &t.r[i].write
	broken := x.m.store(&t, i, *w)
	w.flying, w.landed, w.outs = false, true, written(w.outs)
	x.emit(t, i, "its write arrives after all", false, broken)
}

func (x *stepper) orphan(i int) {
	t := x.s
	if w := t.r[i].write; w.flying && t.rev == w.base {
		t.r[i].write = write{}
		x.emit(t, i, "the write of the dead arrives", false, x.m.store(&t, i, w))
	}
	t = x.s
	t.r[i].write = write{}
	x.emit(t, i, "the write of the dead is gone", true, "")
}

// resolve looks at what stands, and decides what became of a write.
func (x *stepper) resolve(i int) {
	m, t := x.m, x.s
	broken := m.look(&t, i)
	w := t.r[i].write
	s := t.r[i].view.seen()
	fate := s.Fate(names[w.v.nonce], names[w.before])
	if m.topOnly {
		fate = breaker.Missed
		if t.r[i].view.rev != 0 && t.r[i].view.v.nonce == w.v.nonce {
			fate = breaker.Stands
		}
	}
	t.r[i].write = write{}
	switch fate {
	case breaker.Stands:
		x.wrote(t, i, w, "looks: it was written", broken)
	case breaker.Missed:
		x.unwritten(t, i, w, "looks: it was not written", true, broken)
	case breaker.Waits:
		w.flying = false
		x.send(t, i, w, "looks, sends it again")
	default:
		f := m.foldOf(w.fold, w.epoch).Unsure()
		w.fold, w.epoch = m.keep(f)
		x.unwritten(t, i, w, "looks: nobody knows", true, broken)
	}
}

// wrote is what follows from a write that stands.
func (x *stepper) wrote(t state, i int, w write, what, broken string) {
	r := &t.r[i]
	r.write = write{}
	if !w.landed {
		broken = believed
	}
	switch w.kind {
	case settles:
		r.call = call{}
	case asks:
		s := r.view.seen()
		if x.m.blind || s.Holds(names[w.v.nonce]) {
			r.call = call{kind: probe, epoch: uint8(s.Epoch()), nonce: w.v.nonce}
			if w.late {
				r.call.kind = ended + uint8(breaker.Neutral)
			}
		}
	}
	x.emit(t, i, what, true, broken)
}

// unwritten takes back what a write was to say.
func (x *stepper) unwritten(t state, i int, w write, what string, fair bool, broken string) {
	r := &t.r[i]
	if w.kind == asks && t.cur.holds(w.v.nonce) && broken == "" {
		broken = leaked
	}
	if w.kind == folds {
		f := x.m.foldOf(w.fold, w.epoch).Then(x.m.foldOf(r.fold, r.epoch))
		switch {
		case f.Epoch == uint64(w.epoch) && (f.Epoch == uint64(r.epoch) || r.outs == 0):
			r.outs = then(w.outs, r.outs)
		case f.Epoch == uint64(w.epoch):
			r.outs = w.outs
		}
		r.fold, r.epoch = x.m.keep(f)
	}
	x.emit(t, i, what, fair, broken)
}

// crash ends an executor, and begins another in its place that knows nothing.
func (x *stepper) crash(i int) {
	t := x.s
	r := t.r[i]
	if t.crashes == 0 || r == (replica{}) {
		return
	}
	t.crashes--
	t.r[i] = replica{}
	if w := r.write; w.flying {
		w.orphan = true
		t.r[i].write = w
	}
	if t.lease == uint8(i+1) && !x.m.early {
		t.lease = 0
	}
	x.emit(t, i, "crashes", false, "")
}

// fresh is a nonce that does not occur in t. Nonces are canonical, so the highest one is known to be small.
func (t *state) fresh() uint8 {
	most := uint8(0)
	t.nonces(func(n *uint8) { most = max(most, *n) })
	return most + 1
}

// nonces visits every nonce, revs every revision.
func (t *state) nonces(f func(*uint8)) {
	t.cur.nonces(f)
	for i := range t.r {
		t.r[i].nonces(f)
	}
}

func (r *replica) nonces(f func(*uint8)) {
	r.view.v.nonces(f)
	f(&r.call.nonce)
	if r.write.kind != 0 {
		r.write.v.nonces(f)
		f(&r.write.before)
		f(&r.write.settles)
	}
}

func (v *value) nonces(f func(*uint8)) {
	f(&v.nonce)
	f(&v.grants[0])
	f(&v.grants[1])
	for i := range v.past {
		if v.past[i] == 0 {
			break
		}
		f(&v.past[i])
	}
}

func (t *state) revs(f func(*uint8)) {
	f(&t.rev)
	f(&t.cur.epoch)
	for i := range t.r {
		r := &t.r[i]
		f(&r.view.rev)
		f(&r.view.v.epoch)
		if r.call.epoch != over {
			f(&r.call.epoch)
		}
		f(&r.epoch)
		f(&r.write.v.epoch)
		f(&r.write.base)
		f(&r.write.epoch)
	}
}

// canon numbers revisions and nonces anew: the former in their order, the latter as they occur. Executors are alike, so
// they are sorted, except in what refers to them by number.
func (t *state) canon(m *protocol) {
	epoch := t.cur.epochAt(t.rev)
	for i := range t.r[:m.replicas] {
		if m.sideLease || m.blind {
			break
		}
		if t.r[i].ended(epoch, &t.cur); t.r[i].call == (call{kind: plain, epoch: over}) && !m.noFence {
			t.r[i].call = call{} // what comes of it is dropped
		}
	}
	// Of the past only matters what somebody may look for: the nonces of writes that are under way, and what they replace,
	// or will when they are made.
	var sought [256]bool
	for i := range t.r {
		sought[t.r[i].view.v.nonce] = true
		if w := &t.r[i].write; w.kind != 0 {
			sought[w.v.nonce], sought[w.before] = true, true
		}
	}
	t.cur.forget(&sought)
	for i := range t.r {
		t.r[i].view.v.forget(&sought)
		t.r[i].write.v.forget(&sought)
	}

	var used [256]bool
	t.revs(func(n *uint8) { used[*n] = true })
	var as [256]uint8
	next := uint8(0)
	for n := 1; n < 256; n++ {
		if used[n] {
			next++
			as[n] = next
		}
	}
	t.revs(func(n *uint8) { *n = as[*n] })

	if m.alike {
		t.sort(m.replicas)
	}
	as, next = [256]uint8{}, 0
	t.nonces(func(n *uint8) {
		if *n == 0 {
			return
		}
		if as[*n] == 0 {
			next++
			as[*n] = next
		}
		*n = as[*n]
	})
}

// ended makes alike what no longer makes a difference: at an executor no epoch comes back.
func (r *replica) ended(epoch uint8, cur *value) {
	own := r.view.v.epochAt(r.view.rev)
	if r.outs == 0 || r.epoch != own {
		r.fold, r.epoch, r.outs = 0, 0, 0
	}
	switch c := &r.call; {
	case c.kind == plain && c.epoch != own || c.kind == probe && c.epoch != epoch:
		c.epoch = over
	case c.kind >= ended:
		c.epoch = 0
		if !cur.holds(c.nonce) && !r.view.v.holds(c.nonce) {
			c.nonce = 0
		}
	}
}

// over is the epoch of calls whose epoch has ended.
const over = 255

var order = maphash.MakeSeed()

// sort puts executors that are alike but for their nonces into an order: there is no first among them.
func (t *state) sort(replicas int) {
	var keys [3]uint64
	for i := range replicas {
		r := t.r[i]
		r.nonces(func(n *uint8) { *n = min(*n, 1) })
		keys[i] = maphash.Comparable(order, r)
	}
	for i := 1; i < replicas; i++ {
		for j := i; j > 0 && keys[j] < keys[j-1]; j-- {
			keys[j], keys[j-1] = keys[j-1], keys[j]
			t.r[j], t.r[j-1] = t.r[j-1], t.r[j]
		}
	}
}

// forget drops from the past what nobody looks for: so in the model a past is long enough for whoever looks.
func (v *value) forget(sought *[256]bool) {
	kept := [8]uint8{}
	n := 0
	for _, p := range v.past {
		if p != 0 && sought[p] {
			kept[n] = p
			n++
		}
	}
	v.past = kept
}
