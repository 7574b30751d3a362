package worker

import (
	"strings"
	"testing"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

// Whatever the headers are, they become a request within bounds, or a fault that can be sent.
func FuzzReceive(f *testing.F) {
	f.Add("echo", "Tb-Call", "t1/c1/1", "Tb-Timeout-Ms", "100", []byte("{}"))
	f.Add("", "tb-tool", "echo", "Tb-Key", "k", []byte(""))
	f.Add("echo", "Nats-Rollup", "all", "nats-msg-id", "1", []byte("{"))
	f.Add("echo", "Tb-Blob", "v1;x;1;1;"+strings.Repeat("0", 64), "Content-Type", "application/msgpack", []byte(""))
	f.Add("echo", "Tb-Timeout-Ms", "-9223372036854775809", "Tb-Frame", "\x00", []byte("\xff"))
	f.Add("echo", "Tb-Call", "t/c/1/2", "TB-CALL", "//", []byte("null"))
	f.Fuzz(func(t *testing.T, tool, name1, value1, name2, value2 string, data []byte) {
		h := wire.Header{name1: {value1}, name2: {value2}}
		var s heads
		s.read(h)
		for _, name := range known {
			if got, want := *s.place(name), wire.Get(h, name); got != want {
				t.Errorf("%v: %s = %q, want %q", h, name, got, want)
			}
		}
		if got, want := s.kind(), wire.FrameOf(h); got != want {
			t.Errorf("%v: kind = %q, want %q", h, got, want)
		}
		q, bad := s.parse(tool, data)
		if bad != nil {
			if bad.Run() != fault.NotStarted {
				t.Errorf("%+v: execution = %s, want not_started", bad, bad.Run())
			}
			header, _ := wire.EncodeFault(wire.JSON, bad)
			if err := wire.CheckHeader(header); err != nil {
				t.Error(err)
			}
			return
		}
		if q.timeout < 0 || q.timeout > wire.MaxMs*time.Millisecond || len(q.key) > maxKey || len(q.session) > maxKey {
			t.Errorf("out of bounds: %+v", q)
		}
		if q.call != "" && q.call != q.ref.Key() || q.call == "" && q.ref != (wire.CallRef{}) {
			t.Errorf("call = %q and reference = %v", q.call, q.ref)
		}
		if tool != "" && q.tool != tool {
			t.Errorf("tool = %q on the subject of %q", q.tool, tool)
		}
		for k := range q.header {
			if len(k) >= 5 && strings.EqualFold(k[:5], "nats-") {
				t.Errorf("header %q was passed on", k)
			}
		}
	})
}
