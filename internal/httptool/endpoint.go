package httptool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// New makes a tool of one endpoint. The error is tool.Problems, whose fields begin with "http": everything that is wrong
// with cfg at once. Secrets are read now. The handler takes any number of calls at once, and keeps connections for reuse.
func New(cfg Config, m tool.Manifest) (worker.Tool, error) {
	e, problems := build(cfg, &m)
	if len(problems) > 0 {
		return worker.Tool{}, problems
	}
	return worker.Tool{Manifest: m, Handler: e}, nil
}

// An endpoint answers the calls of one tool by HTTP requests. It does not change.
type endpoint struct {
	tool     string
	effect   tool.Effect
	method   string
	base     *url.URL // scheme and host
	path     template
	query    []param
	headers  []header
	secrets  []string
	send     func(arguments) (any, bool) // the body; nil where there is none
	form     bool
	success  []Status
	result   string
	pick     tool.Pointer
	maxBytes int64
	allow    allowed
	client   *http.Client
}

// userAgent names us to servers.
const userAgent = "toolbus-toolworker"

func (e *endpoint) use(t *http.Transport) {
	e.client = &http.Client{Transport: t, CheckRedirect: e.redirect}
}

// Handle asks the server once. The result is JSON or worker.Bytes; an error is a *fault.Fault.
func (e *endpoint) Handle(ctx context.Context, call *worker.Call) (any, error) {
	args, err := parseArguments(call.Args)
	if err != nil {
		return nil, fault.New(fault.InvalidArguments, "the arguments are not a JSON object: %v", err)
	}
	var wrote atomic.Bool // part of a request may have reached the server
	trace := &httptrace.ClientTrace{WroteHeaders: func() { wrote.Store(true) }}
	req, f := e.request(httptrace.WithClientTrace(ctx, trace), args, call)
	if f != nil {
		return nil, f
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, e.unanswered(ctx, err, wrote.Load())
	}
	defer resp.Body.Close()
	out, f := e.read(ctx, resp)
	if f != nil {
		return nil, e.clean(f)
	}
	return out, nil
}

func (e *endpoint) request(ctx context.Context, args arguments, call *worker.Call) (*http.Request, *fault.Fault) {
	path, f := expandPath(e.path, args)
	if f != nil {
		return nil, f
	}
	query, f := e.queryOf(args)
	if f != nil {
		return nil, f
	}
	u, err := url.Parse(e.base.String() + path)
	if err != nil {
		return nil, fault.New(fault.InvalidArguments, "the arguments do not make a URL")
	}
	u.RawQuery = query
	var body io.Reader
	contentType := ""
	if e.send != nil {
		if v, ok := e.send(args); ok {
			b, f := e.encode(v)
			if f != nil {
				return nil, f
			}
			body = bytes.NewReader(b)
			contentType = wire.JSON
			if e.form {
				contentType = "application/x-www-form-urlencoded"
			}
		}
	}
	req, err := http.NewRequestWithContext(ctx, e.method, u.String(), body)
	if err != nil {
		return nil, fault.New(fault.InvalidArguments, "the arguments do not make a request: %v", err)
	}
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Accept", "application/json, */*;q=0.5")
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for _, name := range []string{wire.HeaderTraceparent, wire.HeaderTracestate} {
		if v := wire.Get(call.Header, name); v != "" && printable(v) {
			req.Header.Set(name, v)
		}
	}
	if e.changes() && call.Key != "" && printable(call.Key) {
		req.Header[idempotencyKey] = []string{call.Key}
	}
	return req, e.setHeaders(req, args)
}

// idempotencyKey is spelled as net/http would not: it takes a request with "Idempotency-Key" to be safe to repeat on
// another connection, and not every server that ignores the header agrees.
const idempotencyKey = "idempotency-key"

// changes says whether a second request may do something a second time.
func (e *endpoint) changes() bool {
	return e.effect == tool.Write || e.effect == tool.Undeclared && e.method != http.MethodGet && e.method != http.MethodHead
}

func (e *endpoint) setHeaders(req *http.Request, args arguments) *fault.Fault {
	for _, h := range e.headers {
		value, ok, err := h.value.expand(args, func(v any) (string, error) {
			s, err := text(v)
			if err == nil && !printable(s) {
				return "", fmt.Errorf("expected text for the header %s, got a line break or another control character", h.name)
			}
			return s, err
		})
		switch {
		case err != nil:
			return asFault(err)
		case !ok:
		case strings.EqualFold(h.name, idempotencyKey):
			req.Header[idempotencyKey] = []string{value}
		default:
			req.Header.Set(h.name, value)
		}
	}
	return nil
}

// unanswered is the fault of a request without a response.
func (e *endpoint) unanswered(ctx context.Context, err error, wrote bool) *fault.Fault {
	var own *fault.Fault
	if errors.As(err, &own) {
		if wrote { // a redirect that we did not follow: the first request was answered
			g := *own
			g.Execution = fault.Unknown
			own = &g
		}
		return e.clean(own)
	}
	var f *fault.Fault
	switch {
	case ctx.Err() != nil:
		f = e.over(ctx)
	case !wrote:
		f = fault.New(fault.Unavailable, "%s cannot be reached: %v", e.base.Host, cause(err))
		f.Execution = fault.NotStarted
		return e.clean(f)
	case isTimeout(err):
		f = fault.New(fault.Timeout, "%s did not answer in time", e.base.Host)
	default:
		f = fault.New(fault.Upstream, "%s broke off the connection before it answered: %v", e.base.Host, cause(err))
	}
	f.Execution = fault.Unknown
	if !wrote {
		f.Execution = fault.NotStarted
	}
	return e.clean(f)
}

// over is the fault of a call that ended before its response did.
func (e *endpoint) over(ctx context.Context) *fault.Fault {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fault.New(fault.Timeout, "the time was up before %s had answered", e.base.Host)
	}
	return fault.New(fault.Cancelled, "the call was cancelled before %s had answered", e.base.Host)
}

// clean is the fault without secrets.
func (e *endpoint) clean(f *fault.Fault) *fault.Fault {
	g := *f
	g.Message, g.Detail, g.Code = fault.Truncate(e.redact(f.Message), maxMessage), fault.Truncate(e.redact(f.Detail), maxDetail), e.redact(f.Code)
	g.Violations = nil
	for _, v := range f.Violations {
		v.Pointer, v.Expected, v.Got = e.redact(v.Pointer), e.redact(v.Expected), e.redact(v.Got)
		g.Violations = append(g.Violations, v)
	}
	return g.WithCause(nil)
}

// cause is an error without the URL that net/http puts before it: there may be arguments in it.
func cause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
