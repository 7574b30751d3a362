package wire

import (
	"strconv"
	"strings"

	"github.com/toolbus/toolbus/tool"
)

// The queue groups. A queue group picks one of its members for each message.
const (
	QueueGroup    = "workers"   // of everybody who answers tb.v1.call.<tool>
	ExecutorQueue = "executors" // of everybody who answers tb.v1.turn.run
)

// Subjects makes the subjects of one deployment (design §4). Make it with NewSubjects: the zero value makes none that
// anybody listens to. It is a small value, safe for many goroutines; each method allocates its string and no more.
//
// Names and ids that go in must have passed tool.CheckName or tool.CheckID. Nothing is checked or escaped here: these
// are on the path of every call.
type Subjects struct {
	root string // "tb.v1."
}

// NewSubjects takes the first token of every subject: 1 to 32 of A–Z, a–z, 0–9, _ and -. Empty means tb.
func NewSubjects(prefix string) (Subjects, error) {
	if prefix == "" {
		prefix = "tb"
	}
	if !token(prefix, 32) {
		return Subjects{}, refuse(CodeName, "subject prefix %s: use 1 to 32 letters A-Z a-z, digits, _ and -", quote(prefix))
	}
	return Subjects{prefix + ".v1."}, nil
}

// Call is the way in to a tool for plain clients, and for plain workers, which subscribe in QueueGroup.
func (s Subjects) Call(tool string) string { return s.root + "call." + tool }

// ToolOf is the tool of a subject that Call made. It is false for any other.
func (s Subjects) ToolOf(subject string) (tool string, ok bool) {
	rest, ok := strings.CutPrefix(subject, s.root)
	if !ok {
		return "", false
	}
	if rest, ok = strings.CutPrefix(rest, "call."); !ok || !isName(rest) {
		return "", false
	}
	return rest, true
}

// To is one worker instance.
func (s Subjects) To(worker string) string { return s.root + "to." + worker }

// Cancel reaches every worker of a tool: cancel by call where the worker is not known.
func (s Subjects) Cancel(tool string) string { return s.root + "cancel." + tool }

// Heartbeat is where a worker says that it lives.
func (s Subjects) Heartbeat(worker string) string { return s.root + "hb." + worker }

// Heartbeats is all of Heartbeat.
func (s Subjects) Heartbeats() string { return s.root + "hb.*" }

// Rollcall is published by an executor that starts. Every worker answers with a heartbeat on its own subject.
func (s Subjects) Rollcall() string { return s.root + "rollcall" }

// Reply is where the answer to one attempt goes. A worker may be permitted to publish to the replies of its own tools
// only.
func (s Subjects) Reply(tool, executor, n string) string {
	return s.root + "reply." + tool + "." + executor + "." + n
}

// Replies is all replies to one executor.
func (s Subjects) Replies(executor string) string { return s.root + "reply.*." + executor + ".*" }

// ParseReply is the way back from Reply. It is false for any other subject, and allocates nothing.
func (s Subjects) ParseReply(subject string) (tool, executor, n string, ok bool) {
	rest, ok := strings.CutPrefix(subject, s.root)
	if !ok {
		return "", "", "", false
	}
	if rest, ok = strings.CutPrefix(rest, "reply."); !ok {
		return "", "", "", false
	}
	tool, rest, _ = strings.Cut(rest, ".")
	executor, n, _ = strings.Cut(rest, ".")
	if !isName(tool) || !isID(executor) || !isID(n) {
		return "", "", "", false
	}
	return tool, executor, n, true
}

// TurnRun takes a TurnRequest to run now; the events stream to the reply inbox.
func (s Subjects) TurnRun() string { return s.root + "turn.run" }

// TurnSubmit takes a durable turn, into a work-queue stream.
func (s Subjects) TurnSubmit() string { return s.root + "turn.submit" }

// TurnCtl speaks to whoever runs a turn: add calls, close, cancel.
func (s Subjects) TurnCtl(turn string) string { return s.root + "turn.ctl." + turn }

// TurnCtls is all of TurnCtl.
func (s Subjects) TurnCtls() string { return s.root + "turn.ctl.*" }

// Log is the journal of a turn: one writer at a time, every append fenced.
func (s Subjects) Log(turn string) string { return s.root + "log." + turn }

// Logs is all of Log.
func (s Subjects) Logs() string { return s.root + "log.*" }

// Late is where a result that came after its turn is kept.
func (s Subjects) Late(turn, call string) string { return s.root + "late." + turn + "." + call }

// Lates is all of Late.
func (s Subjects) Lates() string { return s.root + "late.*.*" }

// LateOf is the late results of a call of any turn.
func (s Subjects) LateOf(call string) string { return s.root + "late.*." + call }

// TurnLate takes a LateQuery, and TurnTrace a TraceQuery: any executor answers, in ExecutorQueue.
func (s Subjects) TurnLate() string  { return s.root + "turn.late" }
func (s Subjects) TurnTrace() string { return s.root + "turn.trace" }

// Res is the reply subject of an attempt at a durable call, captured by a stream of its own.
func (s Subjects) Res(tool, turn, call string, attempt int) string {
	return s.root + "res." + tool + "." + turn + "." + call + "." + strconv.Itoa(attempt)
}

// Event is what observers listen to, by kind of event.
func (s Subjects) Event(kind string) string { return s.root + "event." + kind }

// Blob is one piece of a claim check, from 0.
func (s Subjects) Blob(id string, chunk int) string {
	return s.root + "blob." + id + "." + strconv.Itoa(chunk)
}

// Blobs is all pieces of all claim checks.
func (s Subjects) Blobs() string { return s.root + "blob.>" }

func isName(s string) bool { return token(s, tool.MaxName) }
func isID(s string) bool   { return token(s, tool.MaxID) }

// token is tool.CheckName and tool.CheckID without the words, for the paths on which nothing may be allocated.
func token(s string, max int) bool {
	if s == "" || len(s) > max {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}
