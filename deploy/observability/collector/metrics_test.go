package collector_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var sample = regexp.MustCompile(`(?m)^((?:toolbus|gen_ai)_\w+)(?:\{(.*)\})? \S+`)
var label = regexp.MustCompile(`(\w+)="`)

// series are the metrics of a page, each with the names of its labels, but for those in without.
func series(page string, without ...string) map[string]bool {
	all := map[string]bool{}
	for _, m := range sample.FindAllStringSubmatch(page, -1) {
		var names []string
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(without, l[1]) {
				names = append(names, l[1])
			}
		}
		slices.Sort(names)
		all[m[1]+"{"+strings.Join(names, ",")+"}"] = true
	}
	return all
}

// What comes by OTLP and through the Collector is called and labelled as what is scraped, so that the same rules and
// dashboards serve both. Prometheus adds job and instance to what it scrapes; the Collector must bring them.
func TestMetricsAreTheSameThroughACollector(t *testing.T) {
	_, jaeger := keep(t)
	c := collect(t, jaeger)
	f := newFleet(t, c)
	f.serve(t, "OTEL_METRICS_EXPORTER=otlp")
	f.golang(t)
	f.turn(t, "echo")

	var want, got map[string]bool
	same := func() bool {
		want, got = series(get(t, "http://"+f.metrics+"/metrics")), series(get(t, "http://"+c.prometheus+"/metrics"), "job", "instance")
		return len(want) > 30 && maps.Equal(got, want)
	}
	defer func() {
		if t.Failed() {
			for name := range want {
				if !got[name] {
					t.Log("only scraped:               ", name)
				}
			}
			for name := range got {
				if !want[name] {
					t.Log("only through the Collector: ", name)
				}
			}
		}
	}()
	await(t, "both have the same metrics with the same labels", same)
}

var who = regexp.MustCompile(`toolbus_worker_capacity\{[^}]*instance="([^"]+)"[^}]*job="toolbus-worker"`)

// Two workers that send their figures to one Collector stay two.
func TestProcessesAreKeptApart(t *testing.T) {
	_, jaeger := keep(t)
	c := collect(t, jaeger)
	f := newFleet(t, c)
	f.serve(t)
	f.golang(t, "OTEL_METRICS_EXPORTER=otlp")
	f.golang(t, "OTEL_METRICS_EXPORTER=otlp")
	await(t, "two instances are on the Collector's page", func() bool {
		all := map[string]bool{}
		for _, m := range who.FindAllStringSubmatch(get(t, "http://"+c.prometheus+"/metrics"), -1) {
			all[m[1]] = true
		}
		return len(all) == 2
	})
}
