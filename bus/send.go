package bus

import (
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

// Send publishes data to subject with the ticket's reply subject (zero ticket: none). h may be nil; of it only what
// wire.Allowed allows goes out. The error, if any, is a fault: nothing was sent, now or later.
// Neither h nor data is kept.
func (c *Conn) Send(t Ticket, subject string, h wire.Header, data []byte) *fault.Fault {
	t.sentTo(subject)
	return c.send(t, subject, h, data)
}

func (c *Conn) send(t Ticket, subject string, h wire.Header, data []byte) *fault.Fault {
	if t.reply != "" && c.mux.refused != nil {
		return notSent(fault.Denied, c.mux.refused, "this user may not receive replies on %s; allow it in its permissions",
			c.subjects.Replies(c.id))
	}
	return c.publish(subject, t.reply, h, data)
}

// Publish publishes without asking for a reply. For headers and errors see Send.
func (c *Conn) Publish(subject string, h wire.Header, data []byte) *fault.Fault {
	return c.publish(subject, "", h, data)
}

// Respond answers to a reply subject. It refuses one that is not for replies (wire.ReplyRule): who asks chooses it, and
// could have us speak to the server in our name. Whether it belongs to the tool that was asked is for the worker to see.
func (c *Conn) Respond(reply string, h wire.Header, data []byte) *fault.Fault {
	if !c.replies.Allows(reply, "") {
		return notSent(fault.Denied, nil, "%.200q is no subject for a reply; expected one below %s or _INBOX", reply,
			c.subjects.Reply("*", "*", "*"))
	}
	return c.publish(reply, "", h, data)
}

func (c *Conn) publish(subject, reply string, h wire.Header, data []byte) *fault.Fault {
	if err := checkSubject(subject); err != nil {
		return notSent(fault.InvalidArguments, err, "subject %.60q (%d bytes): %v", subject, len(subject), err)
	}
	if reply != "" {
		if err := checkSubject(reply); err != nil { // a tool name that nobody checked
			return notSent(fault.InvalidArguments, err, "reply subject %.60q (%d bytes): %v", reply, len(reply), err)
		}
	}
	h, err := wire.Outbound(h)
	if err != nil {
		return notSent(fault.InvalidArguments, err, "message to %s: %v", subject, err)
	}
	err = c.nc.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Header: nats.Header(h), Data: data})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrMaxPayload):
		return notSent(fault.InvalidArguments, err,
			"payload of %d bytes is larger than the %d that the server takes with headers; send less, use a claim check, or raise max_payload",
			len(data), c.nc.MaxPayload())
	}
	f := Fault(err)
	switch f.Kind {
	case fault.Unavailable, fault.Denied, fault.InvalidArguments, fault.Unsupported:
		f.Execution = fault.NotStarted
		return f
	}
	// The socket broke under it. What was written ends in the middle of this message, so the server has no use for it.
	return notSent(fault.Unavailable, err, "could not write to NATS: %v", err)
}

// notSent is a fault of something that never left.
func notSent(kind fault.Kind, cause error, format string, args ...any) *fault.Fault {
	f := fault.New(kind, format, args...)
	f.Execution = fault.NotStarted
	return f.WithCause(cause)
}

var (
	errSubjectLong  = errors.New("expected 1 to 512 bytes; a longer one would close the connection")
	errSubjectChar  = errors.New("expected printable ASCII without blanks and wildcards")
	errSubjectEmpty = errors.New("expected no empty token: no dot at either end, no two in a row")
)

// checkSubject says why nobody may publish to s. nats.go lets most of this pass, and a control line of more than 4096
// bytes closes the connection that all requests share.
func checkSubject(s string) error {
	if s == "" || len(s) > wire.MaxSubject {
		return errSubjectLong
	}
	last := byte('.')
	for i := range len(s) {
		ch := s[i]
		if ch <= ' ' || ch >= 0x7f || ch == '*' || ch == '>' {
			return errSubjectChar
		}
		if ch == '.' && last == '.' {
			return errSubjectEmpty
		}
		last = ch
	}
	if last == '.' {
		return errSubjectEmpty
	}
	return nil
}
