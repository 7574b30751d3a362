package modelcheck

import (
	"strings"
	"testing"
)

// Two clerks who both read a number, add one and write it back; a careful pair compares first.
type ledger struct {
	sum  int
	read [2]int
	at   [2]int // 0 to read, 1 to write, 2 done
}

func clerks(careful bool) Model[ledger] {
	return Model[ledger]{
		Next: func(s ledger, step func(ledger, Label, bool, string)) {
			for i := range s.at {
				t := s
				switch s.at[i] {
				case 0:
					t.read[i], t.at[i] = s.sum, 1
					step(t, Label{i, "reads"}, true, "")
				case 1:
					if careful && s.sum != s.read[i] {
						t.at[i] = 0
						step(t, Label{i, "begins again"}, true, "")
						continue
					}
					t.sum, t.at[i] = s.read[i]+1, 2
					broken := ""
					if t.at[0]+t.at[1] == 4 && t.sum != 2 {
						broken = "a write is lost"
					}
					step(t, Label{i, "writes"}, true, broken)
				}
			}
		},
		Goal: func(s ledger) bool { return s.at == [2]int{2, 2} },
	}
}

func TestCheckFindsTheShortestWay(t *testing.T) {
	r := Check(clerks(false))
	got := strings.Join(r.Broken["a write is lost"], "; ")
	if want := "0: reads; 1: reads; 0: writes; 1: writes   ⇒ a write is lost"; got != want {
		t.Errorf("trace = %q, want %q", got, want)
	}
	if r = Check(clerks(true)); len(r.Broken) > 0 || r.Stuck != nil || !r.Whole || r.States != 12 {
		t.Errorf("%+v, want 12 sound states", r)
	}
}

func TestCheckFindsWhatIsStuck(t *testing.T) {
	r := Check(Model[int]{
		Next: func(s int, step func(int, Label, bool, string)) {
			if s < 3 {
				step(s+1, Label{-1, "on"}, true, "")
			}
			if s == 1 {
				step(9, Label{-1, "into a hole"}, false, "")
			}
		},
		Goal: func(s int) bool { return s == 3 },
	})
	if got, want := strings.Join(r.Stuck, "; "), "on; into a hole; from here the goal is out of reach"; got != want {
		t.Errorf("stuck = %q, want %q", got, want)
	}
	if r = Check(Model[int]{Most: 5, Next: func(s int, step func(int, Label, bool, string)) { step(s+1, Label{}, true, "") }}); r.Whole {
		t.Error("an endless model was walked through")
	}
}
