package fault

// A Class says whether the same call may go well another time.
type Class string

// The classes of seed 000 §1, and a third one for what is nobody's failure.
const (
	Transient Class = "transient" // time may mend it
	Permanent Class = "permanent" // the same call will fail again
	Neutral   Class = "neutral"   // says nothing about the tool: cancelled, out of time
)

// A RetryRule says when the executor itself sends a failed call again. How often and how fast is retry's business.
type RetryRule string

// The retry rules. Always, Elsewhere and AfterHint rest on nothing having run; Overrides.Judge sees to it.
const (
	Never     RetryRule = "never"
	Always    RetryRule = "always"     // nothing ran, so whatever the tool's effect
	ByEffect  RetryRule = "by_effect"  // it may have run: only where running it twice does no harm
	Elsewhere RetryRule = "elsewhere"  // at once, on another worker
	AfterHint RetryRule = "after_hint" // not before the fault's RetryAfter
)

// A Spec is one row of the table: what a kind of fault means unless a manifest says otherwise (design §5).
type Spec struct {
	Class     Class
	Execution Execution // what is known of the run where the fault itself does not say
	Retry     RetryRule

	CountsForBreaker   bool // says that the tool is unwell
	CountsForLoopGuard bool // the model asking for the same again would be a loop

	// FixedBy is who can mend it: time, model, user, author, or empty where there is nothing to mend.
	FixedBy string

	// HTTP is the status code for plain NATS service clients (Nats-Service-Error-Code). FromHTTP reads that of a
	// transient kind back as transient and of a permanent one as permanent, and never as a kind of which nothing ran
	// where something may have.
	HTTP int

	// Suggestions tell the model what to do next. Shared by all faults of the kind: append to it, do not write into it.
	Suggestions []string
}

type row struct {
	kind Kind
	Spec

	// ours marks what the executor did itself. No manifest can change what it means.
	ours bool
}

var table = []row{
	{kind: Timeout, Spec: Spec{Transient, Unknown, ByEffect, true, true, "time", 504,
		[]string{"Simplify the request", "Wait 30 seconds and try again", "Use an alternative tool"}}},
	{kind: Unavailable, Spec: Spec{Transient, NotStarted, Always, true, true, "time", 503,
		[]string{"Try again after a short delay", "Use an alternative tool"}}},
	{kind: WorkerLost, Spec: Spec{Transient, Unknown, ByEffect, true, true, "time", 504,
		[]string{"Check whether the call took effect before repeating it", "Use an alternative tool"}}},
	{kind: Overloaded, Spec: Spec{Transient, NotStarted, Elsewhere, false, true, "time", 503,
		[]string{"Try again after a short delay", "Make fewer calls at once"}}},
	{kind: RateLimited, Spec: Spec{Transient, NotStarted, AfterHint, true, true, "time", 429,
		[]string{"Wait before calling this tool again", "Make fewer calls"}}},
	{kind: Upstream, Spec: Spec{Transient, Unknown, ByEffect, true, true, "time", 500,
		[]string{"Try again after a short delay", "Use an alternative tool"}}},
	{kind: Partial, Spec: Spec{Transient, Unknown, ByEffect, true, true, "time", 504,
		[]string{"Go on with the pieces that came", "Ask for less at once"}}},
	{kind: InvalidArguments, Spec: Spec{Permanent, NotStarted, Never, false, true, "model", 400,
		[]string{"Correct the arguments to match the tool's schema"}}},
	{kind: TruncatedCall, Spec: Spec{Permanent, NotStarted, Never, false, true, "model", 400,
		[]string{"Repeat the whole call; its arguments were cut off", "Use shorter arguments"}}},
	{kind: ToolNotFound, Spec: Spec{Permanent, NotStarted, Never, false, true, "model", 404,
		[]string{"Use one of the available tools"}}},
	{kind: Denied, Spec: Spec{Permanent, NotStarted, Never, false, true, "user", 403,
		[]string{"Ask the user for access", "Use a different tool"}}},
	{kind: ApprovalRequired, Spec: Spec{Permanent, NotStarted, Never, false, true, "user", 403,
		[]string{"Ask the user to approve this call"}}},
	{kind: NotFound, Spec: Spec{Permanent, Done, Never, false, true, "model", 404,
		[]string{"Check the name or id that you asked for", "List what exists first"}}},
	{kind: Unsupported, Spec: Spec{Permanent, Done, Never, false, true, "model", 501,
		[]string{"Use a different operation", "Use a different tool"}}},
	{kind: Failed, Spec: Spec{Permanent, Done, Never, false, true, "model", 424,
		[]string{"Read the message and try a different approach"}}},
	{kind: InvalidResult, Spec: Spec{Permanent, Done, Never, false, true, "author", 424,
		[]string{"Use a different tool", "Tell the user that this tool answered in a form that it should not"}}},
	{kind: CircuitOpen, ours: true, Spec: Spec{Transient, NotStarted, Never, false, true, "time", 503,
		[]string{"Use an alternative tool", "Wait before calling this tool again"}}},
	{kind: Cancelled, ours: true, Spec: Spec{Neutral, Unknown, Never, false, false, "", 499, nil}},
	{kind: Deadline, ours: true, Spec: Spec{Neutral, Unknown, Never, false, false, "", 504,
		[]string{"Go on with the results that are there"}}},
	{kind: LoopBlocked, ours: true, Spec: Spec{Permanent, NotStarted, Never, false, false, "model", 409,
		[]string{"Stop repeating this call; change the arguments or the approach"}}},
	{kind: Internal, Spec: Spec{Transient, Unknown, ByEffect, true, true, "author", 500,
		[]string{"Try again after a short delay", "Use an alternative tool", "Tell the user if it happens again"}}},
}

var byKind = func() map[Kind]*row {
	m := make(map[Kind]*row, len(table))
	for i := range table {
		m[table[i].kind] = &table[i]
	}
	return m
}()

func (k Kind) row() *row {
	if r, ok := byKind[k]; ok {
		return r
	}
	return byKind[Internal]
}

// Spec is what k means. A kind that this version does not know means the same as Internal.
func (k Kind) Spec() Spec { return k.row().Spec }

// Known says whether k is one of the kinds of this version. Others may come from newer peers; keep their names.
func (k Kind) Known() bool { return byKind[k] != nil }

// Kinds is every kind there is, in the order of the table.
func Kinds() []Kind {
	kinds := make([]Kind, len(table))
	for i := range table {
		kinds[i] = table[i].kind
	}
	return kinds
}
