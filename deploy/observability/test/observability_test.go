// Package observability_test holds the configurations beside it to what Toolbus measures: every expression is PromQL,
// every metric in it exists, every alert has a runbook, and the rules say what they should. It is a module of its own,
// because the parser of PromQL is larger than the rest of Toolbus together.
package observability_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// metrics are the Prometheus names of what package otel measures, read from its source: instrument, unit, name.
func metrics(t *testing.T) map[string]bool {
	t.Helper()
	made := regexp.MustCompile(`\b(count|counter|clock|gauge|Int64ObservableGauge)\((?:&[\w.]+, )?"([a-z0-9_.]+)"(?:, "([^"]*)", ")?`)
	files, err := filepath.Glob("../../../otel/metrics*.go")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{"up": true} // Prometheus makes that one itself
	for _, file := range files {
		for _, m := range made.FindAllSubmatch(read(t, file), -1) {
			name := strings.ReplaceAll(string(m[2]), ".", "_")
			if string(m[3]) == "By" {
				name += "_bytes"
			}
			switch string(m[1]) {
			case "count", "counter":
				names[name+"_total"] = true
			case "clock":
				for _, part := range []string{"_bucket", "_sum", "_count"} {
					names[name+"_seconds"+part] = true
				}
			default:
				names[name] = true
			}
		}
	}
	for _, name := range []string{"toolbus_calls_total", "toolbus_call_duration_seconds_bucket", "toolbus_calls_in_flight", "toolbus_nats_traffic_bytes_total", "toolbus_build_info"} {
		if !names[name] {
			t.Fatalf("%s was not found in the source of otel: has it another form now? Found %d names", name, len(names))
		}
	}
	return names
}

type rules struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Record, Alert, Expr string
			Labels, Annotations map[string]string
		}
	}
}

func load(t *testing.T, file string) (r rules) {
	t.Helper()
	if err := yaml.Unmarshal(read(t, file), &r); err != nil {
		t.Fatal(file, ": ", err)
	}
	return r
}

// known are the names that an expression may use: metrics, and what rules record.
func known(t *testing.T) map[string]bool {
	names := metrics(t)
	for _, g := range load(t, "../rules/recording.yaml").Groups {
		for _, r := range g.Rules {
			names[r.Record] = true
		}
	}
	return names
}

// labels are those that our metrics have, and those that Prometheus adds.
var labels = strings.Fields("tool status kind class to what le direction storage stream version job instance")

// check says what is wrong with an expression.
func check(expr string, known map[string]bool) []string {
	expr = strings.NewReplacer("$__rate_interval", "5m", "$tool", "flight_search").Replace(expr)
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}
	}
	var wrong []string
	label := func(name string) {
		if name != "__name__" && !slices.Contains(labels, name) {
			wrong = append(wrong, "there is no label "+name)
		}
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			if !known[n.Name] {
				wrong = append(wrong, "there is no metric "+n.Name)
			}
			for _, m := range n.LabelMatchers {
				label(m.Name)
			}
		case *parser.AggregateExpr:
			for _, l := range n.Grouping {
				label(l)
			}
		}
		return nil
	})
	return wrong
}

func TestCheck(t *testing.T) {
	names := known(t)
	for expr, want := range map[string]string{
		`sum by (tool) (rate(toolbus_calls_total{tool=~"$tool"}[$__rate_interval]))`: "[]",
		`rate(toolbus_calls[5m])`:          "[there is no metric toolbus_calls]",
		`sum by (turn) (toolbus_workers)`:  "[there is no label turn]",
		`toolbus_workers{session="s"} > 0`: "[there is no label session]",
	} {
		if got := fmt.Sprint(check(expr, names)); got != want {
			t.Errorf("%s: %s, want %s", expr, got, want)
		}
	}
	if len(check("sum(", names)) == 0 {
		t.Error("sum( is taken for PromQL")
	}
}

func TestRulesUseWhatThereIs(t *testing.T) {
	names := known(t)
	for _, file := range []string{"../rules/recording.yaml", "../rules/alerts.yaml"} {
		for _, g := range load(t, file).Groups {
			for _, r := range g.Rules {
				for _, wrong := range check(r.Expr, names) {
					t.Errorf("%s: %s%s: %s", filepath.Base(file), r.Record, r.Alert, wrong)
				}
			}
		}
	}
}

// A panel of a dashboard, as far as it is looked at.
type panel struct {
	Title, Description, Type string
	GridPos                  struct{ X, Y, W, H int }
	Targets                  []struct{ Expr, LegendFormat string }
}

func TestDashboards(t *testing.T) {
	names := known(t)
	files, err := filepath.Glob("../grafana/dashboards/*.json")
	if err != nil || len(files) != 4 {
		t.Fatalf("%d dashboards, %v; want 4", len(files), err)
	}
	for _, file := range files {
		var d struct {
			UID, Title  string
			Panels      []panel
			Annotations struct{ List []struct{ Expr string } }
			Templating  struct {
				List []struct {
					Name, Type string
					Query      any
				}
			}
		}
		if err := json.Unmarshal(read(t, file), &d); err != nil {
			t.Fatal(file, ": ", err)
		}
		if d.UID+".json" != filepath.Base(file) || d.Title == "" || len(d.Panels) == 0 {
			t.Errorf("%s: uid %q, title %q, %d panels", file, d.UID, d.Title, len(d.Panels))
		}
		say := func(what, expr string) {
			for _, wrong := range check(expr, names) {
				t.Errorf("%s: %s: %s\n\t%s", d.UID, what, wrong, expr)
			}
		}
		taken := map[[2]int]string{}
		for _, p := range d.Panels {
			if p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
				t.Errorf("%s: panel %q needs a title, a description and something to show", d.UID, p.Title)
			}
			for _, target := range p.Targets {
				say(p.Title, target.Expr)
				for _, m := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
					if !strings.Contains(target.Expr, "("+m[1]+")") && !strings.Contains(target.Expr, m[1]+",") && !strings.Contains(target.Expr, ", "+m[1]+")") {
						t.Errorf("%s: %s: the legend shows %s, by which is not grouped", d.UID, p.Title, m[1])
					}
				}
			}
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other, is := taken[[2]int{x, y}]; is || x >= 24 {
						t.Fatalf("%s: %s lies over %q, or outside", d.UID, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
		for _, a := range d.Annotations.List {
			say("annotation", a.Expr)
		}
		for _, v := range d.Templating.List {
			if q, ok := v.Query.(map[string]any); ok && v.Type == "query" {
				m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(fmt.Sprint(q["query"]))
				if m == nil || !names[m[1]] || !slices.Contains(labels, m[2]) {
					t.Errorf("%s: variable %s: %v", d.UID, v.Name, q["query"])
				}
			}
		}
	}
}

// Every alert has a runbook, and every runbook an alert.
func TestRunbooks(t *testing.T) {
	page := string(read(t, "../../../docs/runbooks.md"))
	sections := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^## (Toolbus\w+)$`).FindAllStringSubmatch(page, -1) {
		sections[m[1]] = true
	}
	tests := string(read(t, "rules_test.yaml"))
	for _, g := range load(t, "../rules/alerts.yaml").Groups {
		for _, r := range g.Rules {
			if !sections[r.Alert] {
				t.Errorf("%s has no section in docs/runbooks.md", r.Alert)
			}
			delete(sections, r.Alert)
			if want := "/docs/runbooks.md#" + strings.ToLower(r.Alert); !strings.HasSuffix(r.Annotations["runbook_url"], want) {
				t.Errorf("%s: runbook_url %q does not end in %s", r.Alert, r.Annotations["runbook_url"], want)
			}
			if s := r.Labels["severity"]; s != "page" && s != "ticket" {
				t.Errorf("%s: severity %q, want page or ticket", r.Alert, s)
			}
			if strings.Count(tests, "alertname: "+r.Alert+"\n")+strings.Count(tests, "alertname: "+r.Alert+",") < 2 {
				t.Errorf("%s is not tested on a bad day and on a good one", r.Alert)
			}
		}
	}
	for name := range sections {
		t.Errorf("docs/runbooks.md: there is no alert %s", name)
	}
}

func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("SKIPPED: THE RULES WERE NOT TESTED. There is no promtool here; it comes with prometheus (apt-get install prometheus)")
	}
	for _, args := range [][]string{
		{"check", "rules", "../rules/recording.yaml", "../rules/alerts.yaml"},
		{"check", "config", "../prometheus.yaml"},
		{"test", "rules", "rules_test.yaml"},
	} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
