package breaker

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const s = time.Second

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// A script drives one machine. Words are separated by spaces:
//
//	ask        a call asks, and must be let through; its permit gets the next letter: a, b, c …
//	no         a call asks, and must be refused
//	+a -a =a   the call with permit a ended: success, failure, neutral
//	30s        time passes
//	!state     Force(state) by "ann"; !state/10s for a while
//
// It answers with the changes of state, such as "closed>open".
func script(t *testing.T, m *Machine, text string) string {
	t.Helper()
	now, permits := noon, []Permit{}
	var got []string
	saw := func(tr Transition, ok bool) {
		if ok {
			got = append(got, tr.From.String()+">"+tr.To.String())
		}
	}
	for _, word := range strings.Fields(text) {
		switch word[0] {
		case 'a', 'n':
			p, ok := m.Admit(now)
			if ok != (word == "ask") {
				t.Fatalf("%q: Admit in %s = %v, want %v", text, m.rec.State, ok, word == "ask")
			}
			if ok {
				permits = append(permits, p)
				saw(p.Transition())
			}
		case '+', '-', '=':
			o := map[byte]Outcome{'+': Success, '-': Failure, '=': Neutral}[word[0]]
			saw(m.Report(now, permits[word[1]-'a'], o))
		case '!':
			name, long, _ := strings.Cut(word[1:], "/")
			for i, n := range stateNames {
				if n == name {
					d, _ := time.ParseDuration(long)
					saw(m.Force(now, State(i), "ann", "maintenance", d))
				}
			}
		default:
			d, err := time.ParseDuration(word)
			if err != nil {
				t.Fatal(err)
			}
			now = now.Add(d)
		}
	}
	return strings.Join(got, " ")
}

func TestMachine(t *testing.T) {
	policy := Policy{FailureThreshold: 2, SuccessThreshold: 2, OpenFor: 30 * s, ProbeLease: 60 * s}
	const opens = "ask ask -a -b "
	tests := []struct{ name, script, want string }{
		{"a success ends a row of failures", "ask ask ask -a +b -c", ""},
		{"neutral ends no row", "ask ask ask -a =b -c", "closed>open"},
		{"in a row means by report", "ask ask ask -c +a -b", ""},
		{"opens", opens + "no", "closed>open"},
		{"stays open for its time", opens + "29.999s no", "closed>open"},
		{"half-opens after its time", opens + "30s ask", "closed>open open>half_open"},
		{"one probe at once", opens + "30s ask no no", "closed>open open>half_open"},
		{"one success does not close", opens + "30s ask +c ask no", "closed>open open>half_open"},
		{"two successes close", opens + "30s ask +c ask +d ask ask", "closed>open open>half_open half_open>closed"},
		{"a failure opens again, for the whole time", opens + "30s ask +c ask -d 29s no 1s ask",
			"closed>open open>half_open half_open>open open>half_open"},
		{"successes of an earlier half-open do not count", opens + "30s ask +c ask -d 30s ask +e ask no",
			"closed>open open>half_open half_open>open open>half_open"},
		{"a neutral probe gives its place back", opens + "30s ask =c ask =d ask +e ask +f",
			"closed>open open>half_open half_open>closed"},
		{"a neutral probe does not end a row of successes", opens + "30s ask +c ask =d ask +e",
			"closed>open open>half_open half_open>closed"},
		{"a probe that is reported twice counts once", opens + "30s ask +c +c ask no",
			"closed>open open>half_open"},
		{"a lost probe gives its place back", opens + "30s ask 59s no 1s ask +d ask +e",
			"closed>open open>half_open half_open>closed"},
		{"a probe given up on does not count", opens + "30s ask 60s ask -c no",
			"closed>open open>half_open"},
		{"a late probe counts while nobody took its place", opens + "30s ask 60s +c ask +d",
			"closed>open open>half_open half_open>closed"},
		{"what was sent while closed decides nothing later", "ask ask ask ask -a -b +c -d 30s ask +c +d -c no",
			"closed>open open>half_open"},
		{"an old failure does not open again", "ask ask ask -a -b 30s ask +d ask +e -c ask -c",
			"closed>open open>half_open half_open>closed"},
		{"closing begins afresh", opens + "30s ask +c ask +d ask -e ask", "closed>open open>half_open half_open>closed"},

		{"forced open", "!forced_open no 1000h no", "closed>forced_open"},
		{"forced open for a while", "!forced_open/10s 9s no 1s ask -a ask", "closed>forced_open forced_open>closed"},
		{"forced closed never opens", "!forced_closed ask ask ask -a -b -c ask", "closed>forced_closed"},
		{"forced closed for a while", "!forced_closed/10s ask ask -a -b 10s ask -c ask -d",
			"closed>forced_closed forced_closed>closed closed>open"},
		{"disabled", "!disabled ask ask -a -b ask", "closed>disabled"},
		{"an answer from before is nothing to a forced breaker", "ask !forced_closed +a -a !closed -a ask -a -b",
			"closed>forced_closed forced_closed>closed"},
		{"given back to itself", opens + "!closed ask", "closed>open open>closed"},
		{"opened by hand, for its usual time", "!open no 30s ask", "closed>open open>half_open"},
		{"opened by hand, for another time", "!open/5s no 5s ask -a 5s no 25s ask",
			"closed>open open>half_open half_open>open open>half_open"},
		{"asked for a probe", opens + "!half_open ask no +c ask +d", "closed>open open>half_open half_open>closed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := script(t, NewMachine(policy), tt.script); got != tt.want {
				t.Errorf("%q\ngives %q\nwant  %q", tt.script, got, tt.want)
			}
		})
	}
}

func TestSeveralProbesAtOnce(t *testing.T) {
	m := NewMachine(Policy{FailureThreshold: 1, SuccessThreshold: 3, OpenFor: s, Probes: 2})
	got := script(t, m, "ask -a 1s ask ask no +b ask no +c +d")
	if want := "closed>open open>half_open half_open>closed"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSetPolicyKeepsTheState(t *testing.T) {
	m := NewMachine(Policy{})
	script(t, m, "ask ask ask ask -a -b -c -d")
	m.SetPolicy(Policy{FailureThreshold: 2, OpenFor: 10 * s})
	p, _ := m.Admit(noon)
	if _, changed := m.Report(noon, p, Neutral); changed {
		t.Error("a neutral report opened the breaker")
	}
	if _, changed := m.Report(noon, p, Failure); !changed {
		t.Error("the fifth failure did not open the breaker")
	}
	m.SetPolicy(Policy{OpenFor: 5 * s})
	if got := m.View(noon).RetryIn; got != 5*s {
		t.Errorf("RetryIn = %s, want 5s", got)
	}
	if _, ok := m.Admit(noon.Add(5 * s)); !ok {
		t.Error("the new open time does not hold")
	}
}

func TestView(t *testing.T) {
	m := NewMachine(Policy{FailureThreshold: 2})
	if got, want := m.View(noon), (View{Epoch: 1}); got != want {
		t.Errorf("View() = %+v, want %+v", got, want)
	}
	script(t, m, "ask ask -a -b")
	want := View{State: Open, Epoch: 2, OpenedAgo: 10 * s, RetryIn: 20 * s, Reason: "2 failures in a row"}
	if got := m.View(noon.Add(10 * s)); got != want {
		t.Errorf("View() = %+v, want %+v", got, want)
	}
	m.Force(noon.Add(10*s), ForcedOpen, "ann", "maintenance", time.Minute)
	want = View{State: ForcedOpen, Epoch: 3, OpenedAgo: s, RetryIn: 59 * s, Reason: "maintenance", Who: "ann"}
	if got := m.View(noon.Add(11 * s)); got != want {
		t.Errorf("View() = %+v, want %+v", got, want)
	}
}

func TestTransitionsSayWhy(t *testing.T) {
	m := NewMachine(Policy{FailureThreshold: 1})
	p, _ := m.Admit(noon)
	tr, _ := m.Report(noon, p, Failure)
	if want := (Transition{Closed, Open, 2, "1 failure", ""}); tr != want {
		t.Errorf("Report = %+v, want %+v", tr, want)
	}
	p, _ = m.Admit(noon.Add(30 * s))
	tr, ok := p.Transition()
	if want := (Transition{Open, HalfOpen, 3, m.rec.Why, ""}); !ok || tr != want {
		t.Errorf("Transition() = %+v, want %+v", tr, want)
	}
	tr, _ = m.Force(noon, Disabled, "ann", "noise", 0)
	if want := (Transition{HalfOpen, Disabled, 4, "noise", "ann"}); tr != want {
		t.Errorf("Force = %+v, want %+v", tr, want)
	}
	if tr, ok := m.Force(noon, State(99), "ann", "odd", 0); ok {
		t.Errorf("Force(99) = %+v, want nothing", tr)
	}
}

func TestZeroPermitIsNobodys(t *testing.T) {
	m := NewMachine(Policy{FailureThreshold: 1})
	if tr, ok := m.Report(noon, Permit{}, Failure); ok {
		t.Errorf("Report(zero permit) = %+v, want nothing", tr)
	}
	if _, ok := (Permit{}).Transition(); ok {
		t.Error("the zero permit has a transition")
	}
}

func ExampleTransition_Event() {
	for _, state := range []State{Open, HalfOpen, Closed, ForcedOpen, ForcedClosed, Disabled} {
		fmt.Println(Transition{To: state}.Event("flight_search"))
	}
	// Output:
	// Circuit breaker opened for flight_search
	// Circuit breaker half-opened for flight_search
	// Circuit breaker closed for flight_search
	// Circuit breaker forced open for flight_search
	// Circuit breaker forced closed for flight_search
	// Circuit breaker disabled for flight_search
}
