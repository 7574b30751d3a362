package main

import (
	"strings"
	"testing"

	"github.com/toolbus/toolbus/wire"
)

func TestTraceID(t *testing.T) {
	const sampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, test := range []struct{ traceparent, out, said string }{
		{sampled, "4bf92f3577b34da6a3ce929d0e0e4736\n", ""},
		{strings.TrimSuffix(sampled, "1") + "0", "4bf92f3577b34da6a3ce929d0e0e4736\n", "not sampled"},
		{"", "", "is in no trace"},
	} {
		var out, errw strings.Builder
		p := &program{out: &out, err: &errw}
		err := p.printTraceID([]wire.Event{{Type: wire.TurnStarted, Turn: "t1", Traceparent: test.traceparent}})
		said := errw.String()
		if err != nil {
			said += err.Error()
		}
		if out.String() != test.out || !strings.Contains(said, test.said) || (test.said == "") != (said == "") {
			t.Errorf("%q: printed %q, said %q, want %q, %q", test.traceparent, &out, said, test.out, test.said)
		}
	}
}
