package breaker

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// A fleet is some executors, one letter each, and the store between them. A script drives it; words are separated by
// spaces:
//
//	a+ a- a? a~  executor a says that a call succeeded, failed as its worker reported, got no answer, was slow; it is
//	             written at once
//	a-wait/30s   the tool asked for a wait, too
//	a(-+-)       several outcomes in one write
//	aPASS aNO    a call comes to a, and is let through, or is refused
//	aASK         a call comes to a, may ask, and takes what there is to take
//	a.+ a.- a.=  a's oldest probe ends: success, failure, neutral
//	!state       somebody forces the state; !state/10s for a while
//	deaf:b b!    b hears nothing any more; now it does
//	30s          time passes
//
// It answers with the changes of state. A write on what does not stand any more is a conflict: "conflict".
type fleet struct {
	t      *testing.T
	p      Policy
	live   int
	now    time.Time
	roll   float64
	value  Shared
	rev    uint64
	seen   map[string]*Seen
	deaf   map[string]bool
	probes map[string][]string
	nonces int
	got    []string
}

func newFleet(t *testing.T, p Policy, live int) *fleet {
	return &fleet{t: t, p: p, live: live, now: noon, roll: 0.99, seen: map[string]*Seen{}, deaf: map[string]bool{}, probes: map[string][]string{}}
}

func (f *fleet) nonce() string {
	f.nonces++
	return fmt.Sprint("n", f.nonces)
}

func (f *fleet) at(who string) *Seen {
	s := f.seen[who]
	if s == nil {
		s = &Seen{}
	}
	if f.rev > s.Rev && !f.deaf[who] {
		s = s.Next(f.now, f.value, f.rev)
	}
	f.seen[who] = s
	return s
}

// swap is the store. What is written is what others read: after Sane.
func (f *fleet) swap(who string, v Shared, tr Transition) bool {
	s := f.seen[who]
	if s.Rev != f.rev {
		f.got = append(f.got, "conflict")
		return false
	}
	sane, err := v.Sane()
	if err != nil {
		f.t.Errorf("we ourselves wrote what makes no sense: %v: %+v", err, v)
	}
	f.value, f.rev = sane, f.rev+1
	f.seen[who] = s.Next(f.now, f.value, f.rev)
	for _, name := range "abcdef" {
		f.at(string(name))
	}
	if tr.From != tr.To {
		f.got = append(f.got, tr.From.String()+">"+tr.To.String())
	}
	return true
}

func (f *fleet) run(script string) string {
	f.t.Helper()
	for _, word := range strings.Fields(script) {
		if d, err := time.ParseDuration(word); err == nil {
			f.now = f.now.Add(d)
			continue
		}
		if name, ok := strings.CutPrefix(word, "deaf:"); ok {
			f.at(name)
			f.deaf[name] = true
			continue
		}
		if forced, ok := strings.CutPrefix(word, "!"); ok {
			name, long, _ := strings.Cut(forced, "/")
			d, _ := time.ParseDuration(long)
			state, ok := ParseState(name)
			if !ok {
				f.t.Fatalf("%q is no state", name)
			}
			v, tr := f.at("op").Force(state, "ann", "maintenance", d, f.nonce())
			f.swap("op", v, tr)
			continue
		}
		f.executor(word[:1], word[1:], word)
	}
	return strings.Join(f.got, " ")
}

var outcomes = map[byte]Report{
	'+': {Outcome: Success}, '-': {Outcome: Failure}, '?': {Outcome: Failure, Inferred: true, Took: time.Hour},
	'~': {Outcome: Success, Took: time.Hour}, '=': {},
}

func (f *fleet) executor(who, what, word string) {
	f.t.Helper()
	s := f.at(who)
	switch {
	case what == "!":
		f.deaf[who] = false
		f.at(who)
	case what == "PASS" || what == "NO" || what == "ASK":
		want := map[string]Answer{"PASS": Pass, "NO": Refuse, "ASK": Ask}[what]
		if got := s.Admit(f.now, f.p, f.roll); got != want {
			f.t.Fatalf("%s: Admit in %s = %d, want %d", word, s.State(), got, want)
		}
		if want == Ask {
			n := f.nonce()
			v, tr, probe, ok := s.Take(f.now, f.p, who, n)
			if !ok {
				f.t.Fatalf("%s: nothing to take in %s", word, s.State())
			}
			if f.swap(who, v, tr) && probe {
				f.probes[who] = append(f.probes[who], n)
			}
		}
	case what[0] == '.':
		n := f.probes[who][0]
		f.probes[who] = f.probes[who][1:]
		v, tr, ok := s.Settle(f.p, outcomes[what[1]].Outcome, n, f.nonce())
		if !ok {
			f.got = append(f.got, "void")
			return
		}
		f.swap(who, v, tr)
	default:
		kinds, long, _ := strings.Cut(strings.Trim(what, "()"), "wait/")
		wait, _ := time.ParseDuration(strings.Trim(long, "()"))
		var fold Fold
		for i := range len(kinds) {
			r := outcomes[kinds[i]]
			r.Wait = wait
			fold.Add(s, f.p, r, f.nonce())
		}
		if !fold.Says(s) {
			return
		}
		if v, tr, ok := s.Apply(f.now, f.p, fold, who, f.live, f.nonce()); ok {
			f.swap(who, v, tr)
		}
	}
}

func TestShared(t *testing.T) {
	base := Policy{FailureThreshold: 3, SuccessThreshold: 2, OpenFor: 30 * s, ProbeLease: 60 * s}
	with := func(f func(*Policy)) Policy { p := base; f(&p); return p }
	two, ramp := with(func(p *Policy) { p.Probes = 2 }), with(func(p *Policy) { p.Ramp = true })
	grows := with(func(p *Policy) { p.Growth, p.OpenMost = 2, 100*s })
	rate := with(func(p *Policy) { p.Mode, p.MinCalls, p.Window = FailureRate, 4, 60*s })
	slow := with(func(p *Policy) { p.Mode, p.MinCalls, p.Window = SlowCalls, 4, 60*s })
	three := with(func(p *Policy) { p.MinReporters = 3 })
	five := with(func(p *Policy) { p.FailureThreshold = 5 })
	many := with(func(p *Policy) { p.MinReporters = 50 })
	const opens = "a(---) "
	for _, c := range []struct {
		name         string
		p            Policy
		live         int
		script, want string
	}{
		{"failures of several add up", base, 2, "a- b- aPASS b- aNO bNO", "closed>open"},
		{"a success of one ends the row of all", base, 2, "a- b- a+ a- b- aPASS", ""},
		{"a success where nothing stands writes nothing", base, 2, "deaf:b a+ b-", ""},
		{"a row within one write opens, though a success follows", base, 2, "a(---+)", "closed>open"},
		{"so does one that goes on from the store", base, 2, "b- b- a(-+)", "closed>open"},
		{"a success between is no row", base, 2, "b- b- a(+-) a-", ""},
		{"neutral ends no row", base, 2, "a- a= a- a= a-", "closed>open"},
		{"a write on an old value is a conflict", base, 2, "deaf:b a- b-", "conflict"},
		{"what was admitted before the epoch is dropped", base, 2, opens + "deaf:a a- aNO", "closed>open"},

		{"stays open for its time", base, 2, opens + "29.999s aNO bNO 1ms bASK aNO", "closed>open open>half_open"},
		{"one takes the probe, the other's swap is a conflict", base, 2, opens + "30s deaf:b aASK bASK b! bNO", "closed>open open>half_open conflict"},
		{"two successes close", base, 2, opens + "30s aASK a.+ bASK b.+ aPASS", "closed>open open>half_open half_open>closed"},
		{"one failure opens again", base, 2, opens + "30s aASK a.+ bASK b.- aNO 29s aNO 1s aASK", "closed>open open>half_open half_open>open open>half_open"},
		{"a neutral probe frees its place and decides nothing", base, 2, opens + "30s aASK bNO a.= bASK", "closed>open open>half_open"},
		{"a lost probe is taken over after lease and margin", base, 2, opens + "30s aASK 60.499s bNO 1ms bASK a.+ b.+ bASK b.+", "closed>open open>half_open void half_open>closed"},
		{"who hears late waits longer", base, 2, opens + "30s deaf:b aASK 50s b! 60.499s bNO 1ms bASK", "closed>open open>half_open"},
		{"outcomes of the closed time do not count half-open", base, 2, opens + "30s aASK b(+++) b(---) b! a.+ bASK", "closed>open open>half_open"},
		{"two probes", two, 2, opens + "30s aASK bASK aNO bNO a.+ b.+", "closed>open open>half_open half_open>closed"},
		{"two probes, one fails, the other's end is void", two, 2, opens + "30s aASK bASK a.- b.+ bNO", "closed>open open>half_open half_open>open void"},
		{"two lost probes", two, 2, opens + "30s aASK 10s bASK 50.5s aASK aNO 10s bASK bNO", "closed>open open>half_open"},

		{"grows", grows, 2, opens + "30s aASK a.- 59s aNO 1s aASK a.- 99s aNO 1s aASK a.- 99s aNO 1s aASK",
			"closed>open open>half_open half_open>open open>half_open half_open>open open>half_open half_open>open open>half_open"},
		{"growth ends with closing", grows, 2, opens + "30s aASK a.- 60s aASK a.+ aASK a.+ a(---) 30s aASK",
			"closed>open open>half_open half_open>open open>half_open half_open>closed closed>open open>half_open"},
		{"ramp", ramp, 2, opens + "30s aASK a.+ aASK a.+ aNO 14.8s aNO 200ms aPASS", "closed>open open>half_open half_open>closed"},

		{"a wait is everybody's", base, 2, "a-wait/30s aNO bNO 29.999s bNO 1ms bPASS", ""},
		{"a shorter wait does not end a longer one", base, 2, "a-wait/30s a=wait/5s 6s bNO 24s bPASS", ""},
		{"a longer one goes on", base, 2, "a-wait/30s 10s b=wait/30s 29s aNO 1s aPASS", ""},
		{"a wait of a neutral outcome", base, 2, "a=wait/1s bNO 1s bPASS", ""},
		{"a wait outlasts the open time", base, 2, "a(---wait/60s) 59s aNO 1s aASK", "closed>open open>half_open"},
		{"less than a millisecond is one", base, 2, "a=wait/1us aNO 1ms aPASS", ""},
		{"a wait in half-open keeps the probe", base, 2, opens + "30s aASK b=wait/5s a.+ bNO 5s bASK b.+", "closed>open open>half_open half_open>closed"},

		{"one sick executor does not open for two", base, 2, "a(??????????) bPASS", ""},
		{"two that agree do", base, 2, "a? a? b?", "closed>open"},
		{"what was reported counts with it", base, 2, "b- a? b?", "closed>open"},
		{"a success takes the suspicion away", base, 2, "a(?????) b+ b? b?", ""},
		{"one that lives alone opens", base, 1, "a? a? a?", "closed>open"},
		{"min reporters", three, 5, "a(?????) b? aPASS c?", "closed>open"},
		{"min reporters, fewer live", three, 2, "a? b? b?", "closed>open"},
		{"more reporters than a record holds", many, 100, "a(???) b? c? d?", ""},

		{"rate", rate, 2, "a- b- a+ aPASS b+", "closed>open"},
		{"rate, too few calls", rate, 2, "a- b- a-", ""},
		{"rate, too few bad", rate, 2, "a+ a+ a+ a- a+ a- a+ a-", ""},
		{"rate, neutral is no call", rate, 2, "a- a- a= a= a=", ""},
		{"rate, the window has passed", rate, 2, "a- a- 60s a- a-", ""},
		{"rate, within both halves", rate, 2, "a- a- 30s a- a-", "closed>open"},
		{"rate, the first half has passed", rate, 2, "a- a- 31s a+ 31s a- a-", ""},
		{"who infers much is one voice of those needed", five, 2, "a(????????) b? bPASS", ""},
		{"two voices are enough", five, 2, "a(????????) b?? bNO", "closed>open"},
		{"rate, silence of one", rate, 2, "a(????????) bPASS", ""},
		{"rate, silence of two", rate, 2, "a(???) b?", "closed>open"},
		{"rate, silence long ago", rate, 2, "a? b? 10m a? b? 10m a? b? 10m a? b? 10m a(++++++++) b+", ""},
		{"rate, a call of both halves' silence", rate, 2, "a(??) b? 31s a+", "closed>open"},
		{"slow", slow, 2, "a~ b~ a+ b+", "closed>open"},
		{"slow, failures are bad too", slow, 2, "a- b~ a+ b+", "closed>open"},
		{"slow, silence is not slow", slow, 2, "a(????????) bPASS", ""},

		{"forced open, until the next word", base, 2, "!forced_open aNO 8000h aNO !closed aPASS", "closed>forced_open forced_open>closed"},
		{"forced open for a while", base, 2, "!forced_open/10s 9.999s aNO 1ms aASK aPASS", "closed>forced_open forced_open>closed"},
		{"forced open for less than a millisecond", base, 2, "!forced_open/1us aNO 1ms aASK", "closed>forced_open forced_open>closed"},
		{"forced open for longer than a record holds", base, 2, "!forced_open/20000h 8000h aNO 1000h aASK", "closed>forced_open forced_open>closed"},
		{"forced closed", base, 2, "!forced_closed a(---) aPASS a=wait/9s aPASS", "closed>forced_closed"},
		{"forced closed for a while", base, 2, "!forced_closed/10s a(---) 9s aPASS 1s aASK a(---)", "closed>forced_closed forced_closed>closed closed>open"},
		{"disabled", base, 2, "!disabled a(---) aPASS", "closed>disabled"},
		{"forced while a probe runs", base, 2, opens + "30s aASK !forced_open a.+ aNO !closed aPASS",
			"closed>open open>half_open half_open>forced_open void forced_open>closed"},
		{"an operator ends a wait", base, 2, "a=wait/1h aNO !closed aPASS", ""},
		{"an operator is faster than a trip", base, 2, "deaf:a !forced_closed a(---) a! aPASS", "closed>forced_closed conflict"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := newFleet(t, c.p, c.live).run(c.script); got != c.want {
				t.Errorf("%s\n got %s\nwant %s", c.script, got, c.want)
			}
		})
	}
}

// A policy may change while a breaker is open or half-open.
func TestSharedPolicyChanges(t *testing.T) {
	f := newFleet(t, Policy{FailureThreshold: 1, SuccessThreshold: 5, OpenFor: time.Hour, Probes: 3}, 2)
	f.run("a- 20s aNO")
	f.p.OpenFor = 20 * s
	f.run("aASK aASK aASK aNO a.+")
	f.p.Probes = 1
	f.run("aNO a.= bNO a.= bASK")
	f.p.SuccessThreshold = 1
	f.run("b.= bASK b.+ bPASS")
	if got, want := strings.Join(f.got, " "), "closed>open open>half_open half_open>closed"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What makes no sense in a policy means the default.
func TestSharedWithAnOddPolicy(t *testing.T) {
	for _, p := range []Policy{
		{}, {FailureThreshold: -1, SuccessThreshold: -1, OpenFor: -1, Probes: -1, ProbeLease: -1, Growth: -1, OpenMost: -1, MinReporters: -1},
		{Growth: nan, Rate: nan, OpenFor: 30 * s},
	} {
		f := newFleet(t, p, 2)
		got := f.run("a- b- a- b- aPASS a- aNO 29s aNO 1s aASK bNO a.+ bASK b.+ aPASS")
		if want := "closed>open open>half_open half_open>closed"; got != want {
			t.Errorf("%+v: %s, want %s", p, got, want)
		}
		p.Mode = FailureRate
		if got := newFleet(t, p, 2).run("a(-----) a(----) aPASS a-"); got != "closed>open" {
			t.Errorf("%+v: %s, want closed>open", p, got)
		}
	}
}

func TestFate(t *testing.T) {
	f := newFleet(t, Policy{FailureThreshold: 99}, 2)
	if got := f.at("a").Fate("n1", ""); got != Waits {
		t.Errorf("before the first write: %d, want Waits", got)
	}
	f.run("a- a- a-") // n2, n4, n6
	seen := f.at("a")
	for _, c := range []struct {
		nonce, before string
		want          Fate
	}{
		{"n2", "", Stands}, {"n4", "n2", Stands}, {"n6", "n4", Stands}, // whether others wrote since or not
		{"x", "n6", Waits}, {"x", "n4", Missed}, {"x", "n2", Missed}, {"x", "", Missed}, {"x", "y", Unclear},
	} {
		if got := seen.Fate(c.nonce, c.before); got != c.want {
			t.Errorf("Fate(%s, %q) = %d, want %d", c.nonce, c.before, got, c.want)
		}
	}
	f.run("a- a- a- a- a- a- a-")
	if got := f.at("a").Fate("n2", ""); got != Unclear {
		t.Errorf("after %d writes: %d, want Unclear", f.rev, got)
	}
}

func TestFold(t *testing.T) {
	seen, p := &Seen{}, Policy{FailureThreshold: 3}
	of := func(kinds string) (f Fold) {
		for i := range len(kinds) {
			f.Add(seen, p, outcomes[kinds[i]], "")
		}
		return f
	}
	for _, c := range []string{"", "-", "+", "--", "-+", "+-", "-+-", "--+--", "---+", "+---", "-?-", "?+?"} {
		for cut := range len(c) + 1 {
			if got, want := of(c[:cut]).Then(of(c[cut:])), of(c); got != want {
				t.Errorf("%q then %q = %+v, want %+v", c[:cut], c[cut:], got, want)
			}
		}
	}
	if f := of("--+-"); f.Unsure() != of("-") {
		t.Errorf("Unsure = %+v, want %+v", f.Unsure(), of("-"))
	}

	// A wait outlives the epoch in which the tool asked for it.
	f := of("-")
	f.Add(seen, p, Report{Wait: 30 * s}, "w")
	f.Add(seen.Next(noon, Shared{State: "closed"}, 7), p, Report{Outcome: Failure}, "")
	if f.wait != 30*s || f.waitID != "w" || f.failures != 1 || f.Epoch != 7 {
		t.Errorf("%+v, want the wait and one failure of epoch 7", f)
	}
}

var nan = math.NaN()
