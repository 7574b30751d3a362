package wire

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestHeaders(t *testing.T) {
	type named struct {
		Header Header `json:"header"`
		Name   string `json:"name"`
		Value  string `json:"value"`
	}
	type set struct {
		Name  string `json:"name"`
		Value string `json:"value"`
		Code  Code   `json:"code"`
	}
	type typed struct {
		Header Header `json:"header"`
		Type   string `json:"type"` // "" where it is refused
	}
	type framed struct {
		Header Header `json:"header"`
		Frame  Frame  `json:"frame"`
		Ends   bool   `json:"ends"`
	}
	type passed struct {
		Header Header   `json:"header"`
		Left   []string `json:"left"` // the names, sorted
	}
	var v struct {
		Get     []named  `json:"get"`
		Set     []set    `json:"set"`
		Types   []typed  `json:"content_type"`
		Frames  []framed `json:"frame"`
		Inbound []passed `json:"inbound"`
		Filter  []passed `json:"filter"`
	}

	v.Get = []named{
		{Header{}, HeaderCall, ""},
		{Header{"Tb-Call": {"a"}}, HeaderCall, "a"},
		{Header{"tb-call": {"a"}}, HeaderCall, "a"},
		{Header{"TB-CALL": {"A"}, "tb-call": {"a"}}, HeaderCall, "A"},
		{Header{"TB-CALL": {"A"}, "Tb-Call": {"x"}}, HeaderCall, "x"},
		{Header{"Tb-Call": {}, "tb-call": {"a"}}, HeaderCall, "a"},
		{Header{"Tb-Call": {"first", "second"}}, HeaderCall, "first"},
		{Header{"Traceparent": {"00-a"}}, HeaderTraceparent, "00-a"},
	}
	for _, c := range v.Get {
		if got := Get(c.Header, c.Name); got != c.Value {
			t.Errorf("Get(%v, %q) = %q, want %q", c.Header, c.Name, got, c.Value)
		}
	}

	v.Set = []set{
		{HeaderKey, "order 17, Zürich", ""},
		{HeaderKey, "", ""},
		{"", "x", CodeHeader}, {"Tb Key", "x", CodeHeader}, {"Tb-Key:", "x", CodeHeader}, {"Tb-Kéy", "x", CodeHeader}, {"Tb-Key\r\n", "x", CodeHeader},
		{HeaderKey, "a\r\nNats-Rollup: all", CodeHeader}, {HeaderKey, "a\nb", CodeHeader}, {HeaderKey, "a\x00b", CodeHeader},
		{HeaderKey, strings.Repeat("x", MaxValue), ""}, {HeaderKey, strings.Repeat("x", MaxValue+1), CodeTooLarge},
	}
	for _, c := range v.Set {
		h := Header{"TB-KEY": {"old"}, HeaderCall: {"t/c/1"}}
		before := maps.Clone(h)
		err := Set(h, c.Name, c.Value)
		switch {
		case c.Code == "" && (err != nil || Get(h, c.Name) != c.Value || len(h) != 2):
			t.Errorf("Set(%q, %.20q): %v, and h is %v", c.Name, c.Value, err, h)
		case c.Code != "" && (codeOf(err) != c.Code || !reflect.DeepEqual(h, before)):
			t.Errorf("Set(%q, %.20q): %v, want %s and h left alone", c.Name, c.Value, err, c.Code)
		}
	}
	if err := Set(nil, HeaderKey, "x"); err == nil {
		t.Error("Set on a nil map is taken")
	}

	v.Types = []typed{
		{Header{}, JSON},
		{Header{HeaderContentType: {"application/json; charset=utf-8"}}, JSON},
		{Header{"content-type": {"Application/JSON"}}, JSON},
		{Header{HeaderContentType: {MsgPack}}, MsgPack},
		{Header{HeaderContentType: {"application/x-msgpack"}}, MsgPack},
		{Header{HeaderContentType: {"application/vnd.msgpack"}}, MsgPack},
		{Header{HeaderContentType: {"text/plain"}}, ""},
		{Header{HeaderContentType: {"application/jsonp"}}, ""},
		{Header{HeaderContentType: {";"}}, ""},
	}
	for _, c := range v.Types {
		if got, err := CodecOf(c.Header); got != c.Type || (err == nil) != (c.Type != "") {
			t.Errorf("CodecOf(%v) = %q, %v, want %q", c.Header, got, err, c.Type)
		}
	}

	v.Frames = []framed{
		{Header{}, "", true},
		{Header{HeaderFrame: {"result"}}, Result, true},
		{Header{HeaderFrame: {"error"}}, ErrorFrame, true},
		{Header{HeaderFrame: {"nack"}}, Nack, true},
		{Header{HeaderFrame: {"stopped"}}, Stopped, true},
		{Header{"tb-frame": {"accept"}}, Accept, false},
		{Header{HeaderFrame: {"progress"}}, Progress, false},
		{Header{HeaderFrame: {"partial"}, HeaderSeq: {"1"}}, Partial, false},
		{Header{HeaderFrame: {"pong"}}, Pong, false},
		{Header{HeaderFrame: {"a later version's"}}, "a later version's", false},
		{Header{HeaderServiceError: {"no"}}, ErrorFrame, true},
		{Header{HeaderServiceErrorCode: {"500"}}, ErrorFrame, true},
		{Header{HeaderFrame: {"nack"}, HeaderServiceErrorCode: {"503"}}, Nack, true},
	}
	for _, c := range v.Frames {
		if got := FrameOf(c.Header); got != c.Frame || got.Ends() != c.Ends {
			t.Errorf("FrameOf(%v) = %q, which ends: %t; want %q, %t", c.Header, got, got.Ends(), c.Frame, c.Ends)
		}
	}

	v.Inbound = []passed{
		{Header{HeaderCall: {"t/c/1"}, "X-Own": {"1"}}, []string{HeaderCall, "X-Own"}},
		{Header{"Nats-Rollup": {"all"}, "nats-msg-id": {"1"}, "NATS-EXPECTED-LAST-SEQUENCE": {"0"}, "Nats-Request-Info": {"{}"}, HeaderCall: {"t/c/1"}}, []string{HeaderCall}},
		{Header{"Nats-": {"x"}, "Natsy": {"x"}, "X-Nats-Rollup": {"x"}}, []string{"Natsy", "X-Nats-Rollup"}},
	}
	v.Filter = []passed{
		{Header{HeaderCall: {"t/c/1"}, "tb-new": {"1"}, HeaderTraceparent: {"00"}, "Tracestate": {"a=b"}, HeaderBaggage: {"c=d"}, HeaderContentType: {JSON}},
			[]string{HeaderContentType, HeaderCall, "Tracestate", HeaderBaggage, "tb-new", HeaderTraceparent}},
		{Header{"X-Own": {"1"}, "Nats-Rollup": {"all"}, "Nats-Service-Error-Codes": {"x"}, "Authorization": {"x"}, HeaderServiceError: {"no"}, HeaderServiceErrorCode: {"500"}},
			[]string{HeaderServiceError, HeaderServiceErrorCode}},
	}
	check := func(name string, f func(Header) Header, cases []passed) {
		for _, c := range cases {
			slices.Sort(c.Left)
			before := maps.Clone(c.Header)
			if got := slices.Sorted(maps.Keys(f(c.Header))); !slices.Equal(got, c.Left) || !reflect.DeepEqual(c.Header, before) {
				t.Errorf("%s(%v) leaves %q, want %q", name, c.Header, got, c.Left)
			}
		}
	}
	check("Inbound", Inbound, v.Inbound)
	check("Filter", Filter, v.Filter)
	golden(t, "headers.json", v)
}

func codeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func TestCheckHeader(t *testing.T) {
	big := strings.Repeat("x", MaxValue)
	for _, c := range []struct {
		name string
		h    Header
		want Code
	}{
		{"none", nil, ""},
		{"a call", Header{HeaderCall: {"t/c/1"}, HeaderTimeout: {"30000"}}, ""},
		{"one that is as large as may be", Header{"A": {big}}, ""},
		{"two of them", Header{"A": {big, big}}, CodeTooLarge},
		{"many values", Header{"A": slices.Repeat([]string{"x"}, 4000)}, CodeTooLarge},
		{"a line break in the second value", Header{"A": {"x", "y\nz"}}, CodeHeader},
		{"a bad name", Header{"A:b": {"x"}}, CodeHeader},
	} {
		if got := codeOf(CheckHeader(c.h)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func BenchmarkGet(b *testing.B) {
	h := Header{HeaderCall: {"t/c/1"}, HeaderTimeout: {"30000"}, HeaderTraceparent: {"00-a"}}
	b.ReportAllocs()
	for b.Loop() {
		Get(h, HeaderCall)
		Get(h, HeaderFrame)
	}
}

func TestOutbound(t *testing.T) {
	whole := Header{HeaderCall: {"t/c/1"}, HeaderTraceparent: {"00-a-b-01"}}
	mixed := Header{HeaderCall: {"t/c/1"}, "Nats-Rollup": {"all"}, "X-Long": {strings.Repeat("x", MaxValue+1)}}
	for range 20 { // maps have another order each time
		if h, err := Outbound(whole); err != nil || !maps.EqualFunc(h, whole, slices.Equal) {
			t.Fatalf("Outbound(%v) = %v, %v; want it as it is", whole, h, err)
		}
		h, err := Outbound(mixed)
		if want := (Header{HeaderCall: {"t/c/1"}}); err != nil || !maps.EqualFunc(h, want, slices.Equal) {
			t.Fatalf("Outbound(%v) = %v, %v; want %v", mixed, h, err, want)
		}
		if _, err := Outbound(Header{HeaderCall: {"a\nb"}, "Nats-Rollup": {"all"}}); err == nil {
			t.Fatal("Outbound of a line break = nil, want an error")
		}
	}
	if h, err := Outbound(nil); h != nil || err != nil {
		t.Errorf("Outbound(nil) = %v, %v; want nil, nil", h, err)
	}
	big := Header{}
	for i := range 20 {
		big["Tb-"+strings.Repeat("x", i+1)] = []string{strings.Repeat("v", MaxValue)}
	}
	if _, err := Outbound(big); err == nil {
		t.Error("Outbound of more than MaxMetadata = nil, want an error")
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = Outbound(whole) }); n > 0 {
		t.Errorf("Outbound of what may go out allocates %v times, want 0", n)
	}
}
