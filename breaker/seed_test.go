package breaker

import "testing"

func fail(t *testing.T, c *Cell, n int) {
	t.Helper()
	for range n {
		p, ok := c.Admit(noon)
		if !ok {
			t.Fatalf("refused in %s", c.View(noon).State)
		}
		c.Report(noon, p, Failure)
	}
}

func wantState(t *testing.T, c *Cell, want State) {
	t.Helper()
	if got := c.View(noon).State; got != want {
		t.Fatalf("state = %s, want %s", got, want)
	}
}

func TestSeed000_7_3_CircuitOpensAfterNFailures(t *testing.T) {
	c := New(Default())
	fail(t, c, 4)
	wantState(t, c, Closed)
	p, _ := c.Admit(noon)
	tr, changed := c.Report(noon, p, Failure)
	if got, want := tr.Event("flight_search"), "Circuit breaker opened for flight_search"; !changed || got != want {
		t.Errorf("event = %q (%v), want %q", got, changed, want)
	}
	wantState(t, c, Open)
	if _, ok := c.Admit(noon); ok {
		t.Error("an open breaker let a call through")
	}
}

func TestSeed000_7_3_CircuitHalfOpensAfterTimeout(t *testing.T) {
	c := New(Default())
	fail(t, c, 5)
	if _, ok := c.Admit(noon.Add(30*s - 1)); ok {
		t.Error("let a call through before 30 s were over")
	}
	p, ok := c.Admit(noon.Add(30 * s))
	if !ok || !p.Probe {
		t.Errorf("Admit after 30 s = %+v, %v, want a probe", p, ok)
	}
	wantState(t, c, HalfOpen)
}

func TestSeed000_7_3_CircuitClosesAfterSuccessInHalfOpen(t *testing.T) {
	c := New(Default())
	fail(t, c, 5)
	later := noon.Add(30 * s)
	for i := range 2 {
		p, ok := c.Admit(later)
		if !ok {
			t.Fatalf("probe %d refused", i+1)
		}
		c.Report(later, p, Success)
	}
	wantState(t, c, Closed)
}

func TestSeed000_7_3_PermanentErrorsDontCount(t *testing.T) {
	c := New(Default())
	fail(t, c, 4)
	for range 100 {
		p, _ := c.Admit(noon)
		c.Report(noon, p, Neutral)
	}
	wantState(t, c, Closed)
	if got := c.View(noon).Failures; got != 4 {
		t.Errorf("failures = %d, want 4", got)
	}
}

// The five attempts of one call are five admissions of one breaker; the next call finds it open.
func TestSeed000_7_3_CircuitStatePersistsAcrossRetries(t *testing.T) {
	c := New(Default())
	for attempt := range 5 {
		p, ok := c.Admit(noon.Add(s))
		if !ok {
			t.Fatalf("attempt %d refused", attempt+1)
		}
		c.Report(noon.Add(s), p, Failure)
	}
	wantState(t, c, Open)
	if _, ok := c.Admit(noon.Add(2 * s)); ok {
		t.Error("the next call was let through")
	}
}
