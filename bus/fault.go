package bus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolbus/toolbus/fault"
)

// Fault turns an error of nats.go into a fault, once. Nil stays nil, a *fault.Fault anywhere in the chain is returned as
// it is, and what is not NATS's goes to fault.Of.
//
// What it says of the run holds for the one message that failed: NotStarted only where it cannot have left.
func Fault(err error) *fault.Fault {
	if err == nil {
		return nil
	}
	var f *fault.Fault
	if errors.As(err, &f) && f != nil {
		return f
	}
	for _, row := range faults {
		if errors.Is(err, row.err) {
			f := fault.New(row.kind, "%s", row.message)
			f.Detail = err.Error()
			f.Execution = row.run
			return f.WithCause(err)
		}
	}
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return apiFault(api).WithCause(err)
	}
	return fault.Of(err)
}

const (
	disconnected = "not connected to NATS; the connection is being sought again"
	closed       = "the connection to NATS was closed"
	denied       = "NATS refused it to this user; allow it in the server's permissions"
	unwelcome    = "NATS refused the credentials of this connection"
	noJetStream  = "the server has no JetStream for this account; enable it there, or start one with \"executor dev\""
)

// faults is what each error of nats.go means. The first that matches holds.
var faults = []struct {
	err     error
	kind    fault.Kind
	run     fault.Execution
	message string
}{
	{nats.ErrNoResponders, fault.Unavailable, fault.NotStarted, "nobody listens on the subject"},

	// Refused by nats.go before anything was written.
	{nats.ErrReconnectBufExceeded, fault.Unavailable, fault.NotStarted, disconnected},
	{nats.ErrConnectionReconnecting, fault.Unavailable, fault.NotStarted, disconnected},
	{nats.ErrConnectionDraining, fault.Unavailable, fault.NotStarted, "the connection to NATS is being closed"},
	{nats.ErrInvalidConnection, fault.Unavailable, fault.NotStarted, "there is no connection to NATS"},
	{nats.ErrNoServers, fault.Unavailable, fault.NotStarted, "no NATS server answers"},

	// May have been written before.
	{nats.ErrDisconnected, fault.Unavailable, fault.Unknown, disconnected},
	{nats.ErrStaleConnection, fault.Unavailable, fault.Unknown, disconnected},
	{nats.ErrConnectionClosed, fault.Unavailable, fault.Unknown, closed},

	{nats.ErrPermissionViolation, fault.Denied, fault.NotStarted, denied},
	{nats.ErrAuthorization, fault.Denied, fault.NotStarted, unwelcome},
	{nats.ErrAuthExpired, fault.Denied, fault.NotStarted, unwelcome},
	{nats.ErrAuthRevoked, fault.Denied, fault.NotStarted, unwelcome},
	{nats.ErrAccountAuthExpired, fault.Denied, fault.NotStarted, unwelcome},

	{nats.ErrMaxPayload, fault.InvalidArguments, fault.NotStarted, "the payload is larger than the server takes"},
	{nats.ErrBadSubject, fault.InvalidArguments, fault.NotStarted, "the subject is not legal"},
	{nats.ErrBadHeaderMsg, fault.InvalidArguments, fault.NotStarted, "a header is not legal"},
	{nats.ErrHeadersNotSupported, fault.Unsupported, fault.NotStarted, "the server knows no headers; use nats-server 2.2 or later"},
	{nats.ErrSlowConsumer, fault.Overloaded, fault.Unknown, "messages came faster than they were handled"},

	{jetstream.ErrJetStreamNotEnabled, fault.Unsupported, fault.NotStarted, noJetStream},
	{jetstream.ErrJetStreamNotEnabledForAccount, fault.Unsupported, fault.NotStarted, noJetStream},
	{jetstream.ErrNoStreamResponse, fault.Unavailable, fault.NotStarted, "no stream takes the subject"},
	{jetstream.ErrTooManyStalledMsgs, fault.Overloaded, fault.NotStarted, "too many messages wait for JetStream"},
	{jetstream.ErrMsgNotFound, fault.NotFound, "", "no such message in the stream"},
	{jetstream.ErrStreamNotFound, fault.NotFound, "", "no such stream"},
	{jetstream.ErrKeyNotFound, fault.NotFound, "", "no such key"},
	{jetstream.ErrBucketNotFound, fault.NotFound, "", "no such bucket"},

	{nats.ErrTimeout, fault.Timeout, fault.Unknown, "NATS did not answer in time"},
	{context.DeadlineExceeded, fault.Timeout, fault.Unknown, "no answer in time"},
	{context.Canceled, fault.Cancelled, fault.Unknown, "cancelled while waiting for an answer"},
}

// apiFault is what JetStream itself answered, with its code.
func apiFault(api *jetstream.APIError) *fault.Fault {
	kind := fault.Upstream
	switch {
	case isFull(api):
		kind = fault.Overloaded
	case api.Code == 503:
		kind = fault.Unavailable
	case api.Code == 404:
		kind = fault.NotFound
	}
	f := fault.New(kind, "JetStream: %s", api.Description)
	if kind == fault.Unavailable {
		f.Execution = fault.Unknown // the cluster may have taken it and lost its leader
	}
	f.Detail = api.Error()
	return f
}

func isFull(api *jetstream.APIError) bool {
	switch api.ErrorCode {
	case errInsufficient, errMemoryFull, errStorageFull, errStoreFailed:
		return true
	}
	return false
}

// Error codes of JetStream that nats.go has no name for (nats-server's errors.json).
const (
	errInsufficient jetstream.ErrorCode = 10023
	errMemoryFull   jetstream.ErrorCode = 10028
	errStorageFull  jetstream.ErrorCode = 10047
	errStoreFailed  jetstream.ErrorCode = 10077 // a limit of the stream, with discard new
	errNoPeers      jetstream.ErrorCode = 10005
	errNotClustered jetstream.ErrorCode = 10074

	errSubjectsTaken jetstream.ErrorCode = 10065
)
