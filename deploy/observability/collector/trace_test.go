package collector_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// abroad starts the executor and a worker for each language there is, and says which tools they serve and how the trace
// of a turn with a call of each looks.
func abroad(t *testing.T, c *collecting, f *fleet) (tools []string, want string) {
	t.Helper()
	f.serve(t, "OTEL_METRICS_EXPORTER=otlp", "OTEL_LOGS_EXPORTER=otlp")
	want = "turn (toolbus-executor, Server)\n"
	add := func(tool, process, service string) {
		tools = append(tools, tool)
		want += fmt.Sprintf("  execute_tool %s (toolbus-executor, Internal)\n    send tb.v1.call.{tool} (toolbus-executor, Producer)\n      %s (%s, Consumer)\n", tool, process, service)
	}
	f.golang(t, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+c.grpc)
	add("echo", "process tb.v1.call.{tool}", "toolbus-worker")
	if why := f.python(t); why != "" {
		t.Log("SKIPPED: ", why)
	} else {
		add("echo_python", "execute_tool echo_python", "python")
	}
	if why := f.typescript(t); why != "" {
		t.Log("SKIPPED: ", why)
	} else {
		add("echo_typescript", "execute_tool echo_typescript", "typescript")
	}
	return tools, want
}

// tree writes spans as a tree, a line each, siblings in the order of their names. Spans whose parents are not among them are roots.
func tree(spans []span) string {
	slices.SortFunc(spans, func(a, b span) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.id, b.id))
	})
	known := map[string]bool{}
	for _, s := range spans {
		known[s.id] = true
	}
	var b strings.Builder
	var below func(parent, indent string)
	below = func(parent, indent string) {
		for _, s := range spans {
			if s.parent == parent || parent == "" && !known[s.parent] {
				fmt.Fprintf(&b, "%s%s (%s, %s)\n", indent, s.name, s.service, s.kind)
				below(s.id, indent+"  ")
			}
		}
	}
	below("", "")
	return b.String()
}

// One turn, whose calls go to workers in Go, Python and TypeScript, is one trace behind a Collector, and comes there through
// both of its doors. Its pipelines for metrics and logs have something to carry, too.
func TestOneTraceFromThreeLanguages(t *testing.T) {
	jaeger, addr := keep(t)
	c := collect(t, addr)
	f := newFleet(t, c)
	tools, want := abroad(t, c, f)

	id := f.turn(t, tools...)
	await(t, "all spans are there", func() bool { return len(jaeger.trace(id)) >= strings.Count(want, "\n") })
	got := tree(jaeger.trace(id))
	if got != want {
		t.Errorf("the trace is\n%s\nwant\n%s", got, want)
	}
	t.Logf("trace %s:\n%s", id, got)

	for _, signal := range []string{"Traces", "Metrics", "Logs"} {
		await(t, signal+" reach the debug exporter", func() bool { return strings.Contains(c.log.String(), "\t"+signal+"\t") })
	}
	if said := c.log.complaints(); len(said) > 0 {
		t.Errorf("the Collector complains:\n%s", strings.Join(said, ""))
	}
}
