package collector_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// jaegerHost is an address of this machine that is Jaeger's alone: it opens a dozen ports that are always the same.
const jaegerHost = "127.0.0.7"

// found is what Jaeger answers when it is asked for a trace.
type found struct {
	Data []struct {
		Spans []struct {
			SpanID, OperationName, ProcessID string
			References                       []struct{ SpanID string }
			Tags                             []struct {
				Key   string
				Value any
			}
		}
		Processes map[string]struct{ ServiceName string }
	}
}

func (f found) spans() (all []span) {
	for _, d := range f.Data {
		for _, s := range d.Spans {
			one := span{service: d.Processes[s.ProcessID].ServiceName, name: s.OperationName, id: s.SpanID}
			for _, r := range s.References {
				one.parent = r.SpanID
			}
			for _, tag := range s.Tags {
				if kind, ok := tag.Value.(string); ok && tag.Key == "span.kind" {
					one.kind = strings.ToUpper(kind[:1]) + kind[1:]
				}
			}
			if one.kind == "" {
				one.kind = "Internal" // Jaeger does not say so
			}
			all = append(all, one)
		}
	}
	return all
}

// The trace is in Jaeger, too, when that runs as compose.yaml runs it. JAEGER names its program, of version 2: it takes
// minutes to build, from a copy of its module.
//
//	go mod download github.com/jaegertracing/jaeger@v1.76.0
//	cp -r "$(go env GOMODCACHE)/github.com/jaegertracing/jaeger@v1.76.0" /tmp/jaeger && cd /tmp/jaeger
//	chmod -R u+w . && go build -o jaeger2 ./cmd/jaeger
func TestOneTraceInJaeger(t *testing.T) {
	program := os.Getenv("JAEGER")
	if program == "" {
		t.Skip("SKIPPED: NO JAEGER: JAEGER does not name the program; how to build it stands above this test")
	}
	page := freePort(t)
	env := append(os.Environ(), "JAEGER_LISTEN_HOST="+jaegerHost, "OTEL_TRACES_SAMPLER=always_off") // nothing of its own
	spawn(t, env, program, "--set", "extensions.jaeger_query.http.endpoint="+page, "--set", "extensions.jaeger_query.grpc.endpoint="+freePort(t))
	await(t, "Jaeger answers", func() bool { return get(t, "http://"+page+"/api/services") != "" })

	c := collect(t, jaegerHost+":4317")
	f := newFleet(t, c)
	tools, want := abroad(t, c, f)
	id := f.turn(t, tools...)
	var answer found
	await(t, "Jaeger has all spans", func() bool {
		answer = found{}
		text := get(t, "http://"+page+"/api/traces/"+id)
		return text != "" && json.Unmarshal([]byte(text), &answer) == nil && len(answer.spans()) >= strings.Count(want, "\n")
	})
	if got := tree(answer.spans()); got != want {
		t.Errorf("in Jaeger the trace is\n%s\nwant\n%s", got, want)
	}
}
