package wire

// Header is a NATS header: nats.Header without importing it. Keys that start with Tb- are written as they stand here
// and read in any case.
type Header = map[string][]string

// The header names of version 1 (design §4). Only where there is something to say: a fast call carries HeaderCall and
// HeaderTimeout, and its reply carries none.
const (
	HeaderCall        = "Tb-Call"           // <turn>/<call>/<attempt>
	HeaderTimeout     = "Tb-Timeout-Ms"     // what is left for this attempt, a duration
	HeaderKey         = "Tb-Key"            // the caller's idempotency key
	HeaderSession     = "Tb-Session"        //
	HeaderTool        = "Tb-Tool"           // where the subject does not say it
	HeaderProgress    = "Tb-Progress"       // a subject for frames that do not end the attempt
	HeaderFrame       = "Tb-Frame"          // what this message is; none means a call or a result
	HeaderWorker      = "Tb-Worker"         // who speaks
	HeaderSeq         = "Tb-Seq"            // of a partial, from 1
	HeaderRetryAfter  = "Tb-Retry-After-Ms" //
	HeaderBlob        = "Tb-Blob"           // a claim check: see BlobRef
	HeaderRunning     = "Tb-Running"        // on a pong to a ping that named an attempt: 1 or 0
	HeaderContentType = "Content-Type"

	HeaderTraceparent = "traceparent"
	HeaderTracestate  = "tracestate"
	HeaderBaggage     = "baggage"

	HeaderServiceError     = "Nats-Service-Error"      // on errors too, for plain NATS service clients
	HeaderServiceErrorCode = "Nats-Service-Error-Code" //
)

// Content types. None means JSON.
const (
	JSON    = "application/json"
	MsgPack = "application/msgpack"
)

// A Frame says what a message is.
type Frame string

// Frames from a worker. Result, ErrorFrame, Nack and Stopped end the attempt; what follows an end is dropped.
const (
	Result     Frame = "result"   // or none: a plain replier is a worker
	ErrorFrame Frame = "error"    // a fault record
	Nack       Frame = "nack"     // did not and will not run: a fault record
	Stopped    Frame = "stopped"  // cancelled, confirmed
	Accept     Frame = "accept"   // I have it; sent only if the call has not ended within 25 ms
	Progress   Frame = "progress" // a ProgressRecord
	Partial    Frame = "partial"  // a piece of the result; Tb-Seq from 1
	Pong       Frame = "pong"     // the answer to a ping
	Manifests  Frame = "manifests"
)

// Frames to a worker, on its own subject; none means a call.
const (
	Cancel     Frame = "cancel"     // stop the attempt in Tb-Call
	Ping       Frame = "ping"       // answer with a pong; with Tb-Call, say whether that attempt runs
	Drain      Frame = "drain"      // take no more, finish, leave
	Quarantine Frame = "quarantine" // take no more, stay
	Describe   Frame = "describe"   // answer with Manifests: a DescribeRecord
)

// Ends reports whether a frame from a worker ends its attempt.
func (f Frame) Ends() bool {
	return f == "" || f == Result || f == ErrorFrame || f == Nack || f == Stopped
}
