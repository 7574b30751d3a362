package fault

import (
	"context"
	"testing"
)

var yes, no = true, false

func TestJudge(t *testing.T) {
	manifest := Overrides{
		Kinds: map[Kind]Override{
			Timeout:     {Class: Permanent},
			NotFound:    {Class: Transient},
			Denied:      {Class: Transient},
			RateLimited: {Breaker: &no},
			WorkerLost:  {Retry: &no},
			Failed:      {Retry: &yes},
			Unsupported: {Class: Permanent, Retry: &yes, Breaker: &yes},
			Cancelled:   {Class: Transient},
			LoopBlocked: {Class: Transient, Retry: &yes},
		},
		Codes: map[string]Override{
			"503": {Class: Permanent},
			"T1":  {Class: Transient},
			"B1":  {Breaker: &yes},
			"":    {Class: Permanent},
			"odd": {Class: "sometimes"},
		},
	}
	tests := []struct {
		name  string
		fault *Fault
		want  Verdict
	}{
		{"nothing said", New(Upstream, ""), Verdict{Transient, ByEffect, true, ""}},
		{"no code is no code", &Fault{Kind: Upstream}, Verdict{Transient, ByEffect, true, ""}},
		{"a class that is none", &Fault{Kind: Upstream, Code: "odd"}, Verdict{Transient, ByEffect, true, ""}},
		{"a kind made permanent", New(Timeout, ""),
			Verdict{Permanent, Never, false, "the manifest says timeout is permanent"}},
		{"a code made permanent", &Fault{Kind: Unavailable, Code: "503"},
			Verdict{Permanent, Never, false, "the manifest says code 503 is permanent"}},
		{"a kind made transient, may have run", New(NotFound, ""),
			Verdict{Transient, ByEffect, true, "the manifest says not_found is transient"}},
		{"a kind made transient, did not run", New(Denied, ""),
			Verdict{Transient, Always, true, "the manifest says denied is transient"}},
		{"only the breaker", New(RateLimited, ""),
			Verdict{Transient, AfterHint, false, "the manifest says rate_limited does not count for the breaker"}},
		{"only the retry", New(WorkerLost, ""),
			Verdict{Transient, Never, true, "the manifest says worker_lost is not retried"}},
		{"retried though permanent", New(Failed, ""),
			Verdict{Permanent, ByEffect, false, "the manifest says failed is retried"}},
		{"all three", New(Unsupported, ""),
			Verdict{Permanent, ByEffect, true, "the manifest says unsupported is permanent and is retried and counts for the breaker"}},
		{"the code wins over the kind and restores the table", &Fault{Kind: Timeout, Code: "T1"},
			Verdict{Transient, ByEffect, true, "the manifest says timeout is permanent, and code T1 is transient"}},
		{"the code adds to the kind", &Fault{Kind: Timeout, Code: "B1"},
			Verdict{Permanent, Never, true, "the manifest says timeout is permanent, and code B1 counts for the breaker"}},
		{"our own cancel stays", New(Cancelled, ""), Verdict{Neutral, Never, false, ""}},
		{"our own refusal stays", New(LoopBlocked, ""), Verdict{Permanent, Never, false, ""}},
		{"it may have run after all", &Fault{Kind: Unavailable, Execution: Unknown}, Verdict{Transient, ByEffect, true, ""}},
		{"it certainly did not run", &Fault{Kind: Upstream, Execution: NotStarted}, Verdict{Transient, Always, true, ""}},
		{"stopped half way", &Fault{Kind: Overloaded, Execution: Stopped}, Verdict{Transient, ByEffect, false, ""}},
		{"no fault", nil, Verdict{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := manifest.Judge(tt.fault); got != tt.want {
				t.Errorf("Judge(%v) = %+v, want %+v", tt.fault, got, tt.want)
			}
		})
	}
}

func TestNoOverridesIsTheTable(t *testing.T) {
	for _, k := range Kinds() {
		s := k.Spec()
		want := Verdict{s.Class, s.Retry, s.CountsForBreaker, ""}
		if got := (Overrides{}).Judge(New(k, "")); got != want {
			t.Errorf("Judge(%s) = %+v, want %+v", k, got, want)
		}
	}
}

func TestSeed000_7_1_NetworkTimeoutIsTransient(t *testing.T) {
	class(t, context.DeadlineExceeded, Transient)
}
func TestSeed000_7_1_InvalidInputIsPermanent(t *testing.T) { class(t, status(400), Permanent) }
func TestSeed000_7_1_RateLimitIsTransient(t *testing.T)    { class(t, status(429), Transient) }
func TestSeed000_7_1_AuthFailureIsPermanent(t *testing.T) {
	class(t, status(401), Permanent)
	class(t, status(403), Permanent)
}

// The seed's own example: "treat 503 as permanent for this tool".
func TestSeed000_7_1_ManifestCanOverride(t *testing.T) {
	class(t, status(503), Transient)
	manifest := Overrides{Codes: map[string]Override{"503": {Class: Permanent}}}
	if got := manifest.Judge(Of(status(503))); got.Class != Permanent || got.Retry != Never {
		t.Errorf("Judge(503) = %+v, want permanent and never retried", got)
	}
}

func class(t *testing.T, err error, want Class) {
	t.Helper()
	if got := Of(err).Spec().Class; got != want {
		t.Errorf("class of %q = %s, want %s", err, got, want)
	}
}

func TestJudgeDoesNotAllocate(t *testing.T) {
	f := New(Timeout, "no answer")
	o := Overrides{Codes: map[string]Override{"503": {Class: Permanent}}}
	if n := testing.AllocsPerRun(100, func() { o.Judge(f) }); n != 0 {
		t.Errorf("Judge allocates %v times, want 0", n)
	}
}

func BenchmarkJudge(b *testing.B) {
	f := New(Timeout, "no answer")
	b.ReportAllocs()
	for b.Loop() {
		Overrides{}.Judge(f)
	}
}
