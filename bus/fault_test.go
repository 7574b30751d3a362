package bus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
)

func TestFault(t *testing.T) {
	api := func(code int, errCode jetstream.ErrorCode) error {
		return &jetstream.APIError{Code: code, ErrorCode: errCode, Description: "what it said"}
	}
	for _, tt := range []struct {
		err  error
		kind fault.Kind
		run  fault.Execution
	}{
		{nats.ErrNoResponders, fault.Unavailable, fault.NotStarted},
		{nats.ErrReconnectBufExceeded, fault.Unavailable, fault.NotStarted},
		{nats.ErrConnectionReconnecting, fault.Unavailable, fault.NotStarted},
		{nats.ErrConnectionDraining, fault.Unavailable, fault.NotStarted},
		{nats.ErrNoServers, fault.Unavailable, fault.NotStarted},
		{nats.ErrConnectionClosed, fault.Unavailable, fault.Unknown},
		{nats.ErrDisconnected, fault.Unavailable, fault.Unknown},
		{nats.ErrStaleConnection, fault.Unavailable, fault.Unknown},
		{fmt.Errorf("%w: Permissions Violation", nats.ErrPermissionViolation), fault.Denied, fault.NotStarted},
		{nats.ErrAuthorization, fault.Denied, fault.NotStarted},
		{nats.ErrMaxPayload, fault.InvalidArguments, fault.NotStarted},
		{nats.ErrBadSubject, fault.InvalidArguments, fault.NotStarted},
		{nats.ErrTimeout, fault.Timeout, fault.Unknown},
		{context.DeadlineExceeded, fault.Timeout, fault.Unknown},
		{context.Canceled, fault.Cancelled, fault.Unknown},
		{jetstream.ErrJetStreamNotEnabled, fault.Unsupported, fault.NotStarted},
		{jetstream.ErrNoStreamResponse, fault.Unavailable, fault.NotStarted},
		{jetstream.ErrMsgNotFound, fault.NotFound, fault.Done},
		{jetstream.ErrKeyNotFound, fault.NotFound, fault.Done},
		{api(503, 10008), fault.Unavailable, fault.Unknown},
		{api(503, 10077), fault.Overloaded, fault.NotStarted},
		{api(500, 10047), fault.Overloaded, fault.NotStarted},
		{api(400, 10071), fault.Upstream, fault.Unknown},
		{api(404, 10059), fault.NotFound, fault.Done},
		{errors.New("something else"), fault.Upstream, fault.Unknown},
		{fault.New(fault.Failed, "its own"), fault.Failed, fault.Done},
	} {
		f := bus.Fault(fmt.Errorf("doing it: %w", tt.err))
		if f.Kind != tt.kind || f.Run() != tt.run {
			t.Errorf("Fault(%v) = %s, %s, want %s, %s", tt.err, f.Kind, f.Run(), tt.kind, tt.run)
		}
		if !errors.Is(f, tt.err) {
			t.Errorf("Fault(%v) forgot its cause", tt.err)
		}
	}
	if f := bus.Fault(nil); f != nil {
		t.Errorf("Fault(nil) = %v", f)
	}
}
