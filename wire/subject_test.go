package wire

import (
	"fmt"
	"strings"
	"testing"
)

func subjects(t testing.TB, prefix string) Subjects {
	t.Helper()
	s, err := NewSubjects(prefix)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSubjects(t *testing.T) {
	type made struct {
		Prefix  string `json:"prefix"`
		Method  string `json:"method"`
		Args    []any  `json:"args"`
		Subject string `json:"subject"`
	}
	type parsed struct {
		Subject string   `json:"subject"`
		OK      bool     `json:"ok"`
		Parts   []string `json:"parts"` // tool, executor, n
	}
	type ruled struct {
		Reply string `json:"reply"`
		Tool  string `json:"tool"`
		Allow bool   `json:"allow"`
	}
	var v struct {
		Prefixes struct {
			Good []string `json:"good"`
			Bad  []string `json:"bad"`
		} `json:"prefixes"`
		Subjects  []made   `json:"subjects"`
		Replies   []parsed `json:"parse_reply"`
		Tools     []parsed `json:"tool_of"`
		ReplyRule []ruled  `json:"reply_rule"`
	}

	v.Prefixes.Good = []string{"", "tb", "acme", "A_b-9", strings.Repeat("x", 32)}
	for _, p := range v.Prefixes.Good {
		if _, err := NewSubjects(p); err != nil {
			t.Errorf("NewSubjects(%q): %v", p, err)
		}
	}
	v.Prefixes.Bad = []string{"a.b", "$SYS", "*", ">", "a b", "ä", "a\r\n", strings.Repeat("x", 33)}
	for _, p := range v.Prefixes.Bad {
		if _, err := NewSubjects(p); err == nil {
			t.Errorf("NewSubjects(%q) is taken", p)
		}
	}

	for _, prefix := range []string{"", "acme"} {
		s := subjects(t, prefix)
		add := func(method, subject string, args ...any) {
			if args == nil {
				args = []any{}
			}
			v.Subjects = append(v.Subjects, made{prefix, method, args, subject})
		}
		add("Call", s.Call("search"), "search")
		add("To", s.To("w-1"), "w-1")
		add("Cancel", s.Cancel("search"), "search")
		add("Heartbeat", s.Heartbeat("w-1"), "w-1")
		add("Heartbeats", s.Heartbeats())
		add("Rollcall", s.Rollcall())
		add("Reply", s.Reply("search", "x-1", "7f"), "search", "x-1", "7f")
		add("Replies", s.Replies("x-1"), "x-1")
		add("TurnRun", s.TurnRun())
		add("TurnSubmit", s.TurnSubmit())
		add("TurnCtl", s.TurnCtl("t1"), "t1")
		add("TurnCtls", s.TurnCtls())
		add("Log", s.Log("t1"), "t1")
		add("Logs", s.Logs())
		add("Late", s.Late("t1", "a"), "t1", "a")
		add("Lates", s.Lates())
		add("LateOf", s.LateOf("a"), "a")
		add("TurnLate", s.TurnLate())
		add("TurnTrace", s.TurnTrace())
		add("Res", s.Res("search", "t1", "a", 2), "search", "t1", "a", 2)
		add("Event", s.Event("ToolError"), "ToolError")
		add("Blob", s.Blob("b1", 0), "b1", 0)
		add("Blobs", s.Blobs())
	}

	s := subjects(t, "")
	for _, subject := range []string{
		"tb.v1.reply.search.x-1.7f", "tb.v1.reply.A_b-9.x.0", "tb.v1.reply.search.x-1." + strings.Repeat("n", 128),
		"", "tb.v1.reply.", "tb.v1.reply.search", "tb.v1.reply.search.x-1", "tb.v1.reply.search.x-1.", "tb.v1.reply..x-1.7f",
		"tb.v1.reply.search..7f", "tb.v1.reply.search.x-1.7f.8", "tb.v1.reply.*.x-1.7f", "tb.v1.reply.search.x-1.>",
		"tb.v1.reply.se arch.x-1.7f", "tb.v2.reply.search.x-1.7f", "acme.v1.reply.search.x-1.7f", "tb.v1.res.search.x-1.7f",
		"tb.v1.reply." + strings.Repeat("n", 65) + ".x-1.7f", "tb.v1.reply.search.x-1." + strings.Repeat("n", 129), "tb.v1.reply.ｗeather.x.1",
	} {
		tool, executor, n, ok := s.ParseReply(subject)
		if ok && s.Reply(tool, executor, n) != subject {
			t.Errorf("ParseReply(%q) = %q, %q, %q, which is another subject", subject, tool, executor, n)
		}
		p := parsed{subject, ok, []string{}}
		if ok {
			p.Parts = []string{tool, executor, n}
		}
		v.Replies = append(v.Replies, p)
	}
	for _, subject := range []string{"tb.v1.call.search", "tb.v1.call.", "tb.v1.call.a.b", "tb.v1.call.*", "tb.v1.to.search", "call.search", ""} {
		tool, ok := s.ToolOf(subject)
		p := parsed{subject, ok, []string{}}
		if ok {
			p.Parts = []string{tool}
		}
		v.Tools = append(v.Tools, p)
	}

	rule := NewReplyRule(s)
	for _, r := range []ruled{
		{"tb.v1.reply.search.x-1.7f", "search", true},
		{"tb.v1.res.search.t1.a.1", "search", true},
		{"_INBOX.abc", "search", true},
		{"_INBOX.abc.1", "search", true},
		{"_INBOX_acme.abc.1", "search", true},
		{"_R_.a.b", "search", true},
		{"", "search", false},
		{"_INBOX", "search", false},
		{"_INBOX.", "search", false},
		{"_INBOXES.abc", "search", false},
		{"_inbox.abc", "search", false},
		{"_R_", "search", false},
		{"tb.v1.reply.search", "search", false},
		{"tb.v1.reply.search.", "search", false},
		{"tb.v1.reply.search2.x-1.7f", "search", false},
		{"tb.v1.reply.book.x-1.7f", "search", false},
		{"tb.v1.res.book.t1.a.1", "search", false},
		{"tb.v1.reply.book.x-1.7f", "book.x-1", false},
		{"tb.v1.call.search", "search", false},
		{"tb.v1.to.w-1", "search", false},
		{"tb.v1.log.t1", "search", false},
		{"tb.v1.reply..x-1.7f", "", false},
		{"acme.v1.reply.search.x-1.7f", "search", false},
		{"$JS.API.STREAM.PURGE.TURNS", "search", false},
		{"$KV.breaker.x", "search", false},
		{"$SYS.REQ.SERVER.PING", "search", false},
		{"_INBOX.*", "search", false},
		{"_INBOX.>", "search", false},
		{"_INBOX.a*b", "search", false},
		{"_INBOX..a", "search", false},
		{"_INBOX.a b", "search", false},
		{"_INBOX.a\tb", "search", false},
		{"_INBOX.a\r\nPUB x 1", "search", false},
		{"_INBOX.\x00", "search", false},
		{"_INBOX.ä", "search", false},
		{"_INBOX." + strings.Repeat("a", 505), "search", true},
		{"_INBOX." + strings.Repeat("a", 506), "search", false},
	} {
		if got := rule.Allows(r.Reply, r.Tool); got != r.Allow {
			t.Errorf("Allows(%q, %q) = %t, want %t", r.Reply, r.Tool, got, r.Allow)
		}
		v.ReplyRule = append(v.ReplyRule, r)
	}
	golden(t, "subjects.json", v)
}

func TestReplyRuleExtra(t *testing.T) {
	rule := NewReplyRule(subjects(t, ""), "acme.inbox", "own.", "$JS.API", "", "a..b", "*")
	for reply, want := range map[string]bool{
		"acme.inbox.x": true, "own.x": true, "acme.inboxes.x": false, "acme.inbox": false, "$JS.API.x": false, "a..b.x": false, "other.x": false,
	} {
		if got := rule.Allows(reply, "search"); got != want {
			t.Errorf("Allows(%q) = %t, want %t", reply, got, want)
		}
	}
	var zero ReplyRule
	if zero.Allows("search.x", "search") || !zero.Allows("_INBOX.x", "search") {
		t.Error("the zero ReplyRule allows more, or less, than inboxes")
	}
}

func TestNoAllocations(t *testing.T) {
	s := subjects(t, "")
	rule := NewReplyRule(s, "acme.inbox")
	reply, call := s.Reply("search", "x-1", "7f"), s.Call("search")
	h := Header{"tb-frame": {"accept"}, "Tb-Worker": {"w"}, "X": {"y"}}
	packed, err := Marshal(MsgPack, records[0].value)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(){
		"ParseReply":   func() { s.ParseReply(reply) },
		"ToolOf":       func() { _, _ = s.ToolOf(call) },
		"Allows":       func() { rule.Allows(reply, "search") },
		"Get":          func() { Get(h, HeaderFrame) },
		"FrameOf":      func() { FrameOf(h) },
		"CodecOf":      func() { _, _ = CodecOf(h) },
		"Inbound":      func() { Inbound(h) },
		"Allowed":      func() { Allowed("traceparent") },
		"ParseCallRef": func() { _, _ = ParseCallRef("t1/a/1") },
		"Scan":         func() { _ = Scan(packed) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times, want 0", name, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _ = s.Reply("search", "x-1", "7f") }); n > 1 {
		t.Errorf("Reply allocates %v times, want 1", n)
	}
}

func FuzzParseReply(f *testing.F) {
	f.Add("tb.v1.reply.search.x-1.7f")
	f.Add("tb.v1.reply...")
	s := subjects(f, "")
	f.Fuzz(func(t *testing.T, subject string) {
		if tool, executor, n, ok := s.ParseReply(subject); ok && s.Reply(tool, executor, n) != subject {
			t.Errorf("ParseReply(%q) = %q, %q, %q, which is another subject", subject, tool, executor, n)
		}
	})
}

func FuzzReplyRule(f *testing.F) {
	f.Add("tb.v1.reply.search.x-1.7f", "search")
	f.Add("_INBOX.x", "")
	f.Add("$JS.API.STREAM.PURGE.TURNS", "$JS")
	rule := NewReplyRule(subjects(f, ""))
	f.Fuzz(func(t *testing.T, reply, tool string) {
		if !rule.Allows(reply, tool) {
			return
		}
		if len(reply) > MaxSubject || strings.ContainsAny(reply, "*> \t\r\n\x00") || strings.Contains(reply, "..") || strings.HasSuffix(reply, ".") {
			t.Errorf("Allows(%q) = true, and it is no subject to publish to", reply)
		}
		if !strings.HasPrefix(reply, "_INBOX") && !strings.HasPrefix(reply, "_R_.") &&
			!strings.HasPrefix(reply, "tb.v1.reply."+tool+".") && !strings.HasPrefix(reply, "tb.v1.res."+tool+".") {
			t.Errorf("Allows(%q, %q) = true", reply, tool)
		}
	})
}

func BenchmarkAllows(b *testing.B) {
	s := subjects(b, "")
	rule, reply := NewReplyRule(s), s.Reply("search", "x-1", "7f")
	b.ReportAllocs()
	for b.Loop() {
		if !rule.Allows(reply, "search") {
			b.Fatal(reply)
		}
	}
}

func BenchmarkParseReply(b *testing.B) {
	s := subjects(b, "")
	reply := s.Reply("search", "x-1", "7f")
	b.ReportAllocs()
	for b.Loop() {
		s.ParseReply(reply)
	}
}

func ExampleSubjects() {
	s, _ := NewSubjects("acme")
	fmt.Println(s.Call("search"))
	tool, executor, n, ok := s.ParseReply("acme.v1.reply.search.x1.42")
	fmt.Println(tool, executor, n, ok)
	// Output:
	// acme.v1.call.search
	// search x1 42 true
}

func ExampleReplyRule() {
	s, _ := NewSubjects("")
	rule := NewReplyRule(s)
	fmt.Println(rule.Allows("tb.v1.reply.search.x1.42", "search"))
	fmt.Println(rule.Allows("$JS.API.STREAM.PURGE.TURNS", "search"))
	// Output:
	// true
	// false
}
