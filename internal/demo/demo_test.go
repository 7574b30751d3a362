package demo

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call checks the arguments as a worker does, runs the tool, and checks its result.
func call(t *testing.T, cfg Config, name, args string) (string, *fault.Fault) {
	t.Helper()
	return callCtx(t.Context(), t, cfg, name, args)
}

func callCtx(ctx context.Context, t *testing.T, cfg Config, name, args string) (string, *fault.Fault) {
	t.Helper()
	cfg.Only = []string{name}
	tools, err := Tools(cfg)
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := tool.Compile(tools[0].Manifest)
	if err != nil {
		t.Fatal(err)
	}
	if f := compiled.CheckArgs([]byte(args)); f != nil {
		return "", f
	}
	v, err := tools[0].Handler.Handle(ctx, &worker.Call{Tool: name, Args: json.RawMessage(args)})
	if err != nil {
		return "", fault.Of(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%s: its result is no JSON: %v", name, err)
	}
	if f := compiled.CheckResult(out, ""); f != nil {
		t.Errorf("%s: its result breaks its own schema: %v in %s", name, f.Violations, out)
	}
	return string(out), nil
}

// wantFault fails unless f is of this kind and its message has this in it.
func wantFault(t *testing.T, what string, f *fault.Fault, kind fault.Kind, message string) {
	t.Helper()
	if f == nil || f.Kind != kind || !strings.Contains(f.Message, message) {
		t.Errorf("%s: fault %v, want %s: …%s…", what, f, kind, message)
	}
}

func TestManifests(t *testing.T) {
	entries, err := manifests.ReadDir("manifests")
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(Names()) {
		t.Errorf("%d manifests for %d tools", len(entries), len(Names()))
	}
	for _, name := range Names() {
		m, err := Manifest(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		effect := tool.Read
		if name == "book_trip" {
			effect = tool.Write
		}
		if m.ID != name || m.Description == "" || m.Effect != effect || m.TimeoutMs == 0 {
			t.Errorf("%s: id %q, effect %q, timeout %d: want its own name, %s, and one", name, m.ID, m.Effect, m.TimeoutMs, effect)
		}
		c, err := tool.Compile(*m)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if w := c.Warnings(); len(w) > 0 {
			t.Errorf("%s: warnings %q", name, w)
		}
	}
}

func TestTools(t *testing.T) {
	tools, err := Tools(Config{})
	if err != nil || len(tools) != len(Names()) {
		t.Errorf("Tools = %d tools, %v, want %d", len(tools), err, len(Names()))
	}
	for _, cfg := range []Config{{Only: []string{"nope"}}, {Dir: "/no/such"}, {Dir: "demo.go"}, {PageURL: "nope"}} {
		if _, err := Tools(cfg); err == nil {
			t.Errorf("Tools(%+v) went well, want an error", cfg)
		}
	}
}

func TestEcho(t *testing.T) {
	const args = `{"n":12345678901234567890,"text":"é"}`
	if got, f := call(t, Config{}, "echo", args); f != nil || got != args {
		t.Errorf("echo = %s, %v, want %s", got, f, args)
	}
}

func TestFlaky(t *testing.T) {
	_, f := call(t, Config{}, "flaky", `{"fail_times":2}`)
	wantFault(t, "the first attempt", f, fault.Upstream, "attempt 1 fails")
	for attempt, fails := range []bool{1: true, 2: true, 3: false, 4: false} {
		if _, err := (flakyArgs{FailTimes: 2}).run(attempt, 0); (err != nil) != fails && attempt > 0 {
			t.Errorf("attempt %d of fail_times 2: %v, want a failure: %t", attempt, err, fails)
		}
	}
	_, f = call(t, Config{}, "flaky", `{"probability":1,"kind":"rate_limited","message":"slow down","retry_after_ms":50}`)
	wantFault(t, "a kind", f, fault.RateLimited, "slow down")
	if f != nil && f.RetryAfterMs != 50 {
		t.Errorf("retry after %d ms, want 50", f.RetryAfterMs)
	}
	_, f = call(t, Config{}, "flaky", `{"kind":"nope"}`)
	wantFault(t, "no kind", f, fault.InvalidArguments, "kind must be one of")
	if got, f := call(t, Config{}, "flaky", `{}`); f != nil || got != `{"attempt":1}` {
		t.Errorf("flaky = %s, %v, want the first attempt to go well", got, f)
	}
}

func TestCrash(t *testing.T) {
	crashed := 0
	cfg := Config{Crash: func() { crashed++ }}
	_, f := call(t, cfg, "crash", `{}`)
	wantFault(t, "a crash that did not happen", f, fault.Internal, "should have died")
	if crashed != 1 {
		t.Errorf("Crash was called %d times, want 1", crashed)
	}
	defer func() {
		if p := recover(); p == nil || crashed != 1 {
			t.Errorf("panic %v, want one", p)
		}
	}()
	call(t, cfg, "crash", `{"how":"panic"}`)
}

func TestCalculator(t *testing.T) {
	for expression, want := range map[string]string{
		"1 + 2 * 3": "7", "(1+2)*3": "9", "2^3^2": "512", "-2^2": "-4", "2^-1": "0.5", "7 % 4": "3", "10/4": "2.5",
		"--3": "3", "2*-3": "-6", "8-3-2": "3", "sqrt(16)": "4", "MAX(1, 5, 3)": "5", "min(2)": "2", "1e3+.5": "1000.5",
		"round(pi)": "3", "2 ^ 0.5 ^ 2": "1.189207115002721",
	} {
		args, _ := json.Marshal(calculatorArgs{expression})
		got, f := call(t, Config{}, "calculator", string(args))
		var r struct{ Value json.Number }
		if f != nil || json.Unmarshal([]byte(got), &r) != nil || r.Value.String() != want {
			t.Errorf("%s = %s, %v, want %s", expression, got, f, want)
		}
	}
	for expression, want := range map[string]struct {
		kind    fault.Kind
		message string
	}{
		"1/0":                           {fault.Failed, "division by zero"},
		"5 % 0":                         {fault.Failed, "division by zero"},
		"sqrt(-1)":                      {fault.Failed, "not a finite number"},
		"10^999":                        {fault.Failed, "not a finite number"},
		"1 +":                           {fault.InvalidArguments, "expected a number, a name, a sign or ( at byte 4, got the end"},
		"1 2":                           {fault.InvalidArguments, "expected an operator or the end at byte 3, got '2'"},
		"(1":                            {fault.InvalidArguments, "expected an operator or ) at byte 3, got the end"},
		"foo(1)":                        {fault.InvalidArguments, "expected one of pi, e, abs"},
		"sqrt 4":                        {fault.InvalidArguments, "expected ( after sqrt"},
		"sqrt(1,2)":                     {fault.InvalidArguments, "must be sqrt of one value, not of 2"},
		"1e":                            {fault.InvalidArguments, "got 'e'"},
		"1e999":                         {fault.InvalidArguments, "fits 64 bits"},
		"2×3":                           {fault.InvalidArguments, "got '×'"},
		".":                             {fault.InvalidArguments, "a number"},
		strings.Repeat("(", 900):        {fault.InvalidArguments, "nested at most 64 deep"},
		strings.Repeat("-", 900) + "1":  {fault.InvalidArguments, "nested at most 64 deep"},
		strings.Repeat("2^", 400) + "1": {fault.InvalidArguments, "nested at most 64 deep"},
	} {
		_, err := evaluate(expression)
		wantFault(t, expression, fault.Of(err), want.kind, want.message)
	}
}

func FuzzEvaluate(f *testing.F) {
	for _, s := range []string{"1+2*(3-sqrt(4))^2", "-2^-2", "max(1,", "((((", "1e+", "pi%e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		_, err := evaluate(expression)
		var fault *fault.Fault
		if err != nil && !errors.As(err, &fault) {
			t.Errorf("%q: error %v is no fault", expression, err)
		}
	})
}

func TestTableQuery(t *testing.T) {
	got, f := call(t, Config{}, "table_query", `{"where":[{"column":"airline","op":"contains","value":"swiss"},{"column":"price","op":"<","value":180}],"order_by":"price","columns":["flight","price"],"limit":2}`)
	want := `{"columns":["flight","price"],"rows":[{"flight":"LX1952","price":98.6},{"flight":"LX1078","price":142.5}],"total":3}`
	if f != nil || got != want {
		t.Errorf("table_query = %s, %v, want %s", got, f, want)
	}
	got, f = call(t, Config{}, "table_query", `{"where":[{"column":"to","op":"=","value":"jfk"}],"order_by":"price","desc":true,"columns":["flight"]}`)
	if want := `{"columns":["flight"],"rows":[{"flight":"LX14"},{"flight":"BA712"}],"total":2}`; f != nil || got != want {
		t.Errorf("table_query = %s, %v, want %s", got, f, want)
	}
	got, f = call(t, Config{}, "table_query", `{"where":[{"column":"seats","op":">","value":1000}]}`)
	if f != nil || !strings.Contains(got, `"rows":[],"total":0`) {
		t.Errorf("table_query = %s, %v, want no rows", got, f)
	}
	for args, message := range map[string]string{
		`{"where":[{"column":"prize","op":"<","value":1}]}`:     `where/0/column must be one of flight, airline`,
		`{"where":[{"column":"price","op":"<","value":"1"}]}`:   `where/0/value must be like the others of column price, such as 142.5, not "1"`,
		`{"order_by":"nope"}`:                                   `order_by must be one of`,
		`{"columns":["nope"]}`:                                  `columns/0 must be one of`,
		`{"where":[{"column":"to","op":"contains","value":3}]}`: `where/0/value must be text, not 3`,
	} {
		_, f := call(t, Config{}, "table_query", args)
		wantFault(t, args, f, fault.InvalidArguments, message)
	}
}
