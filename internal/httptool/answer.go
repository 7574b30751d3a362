package httptool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// Bounds of what a fault says, in bytes, and of what a server may ask for.
const (
	maxMessage    = 1 << 10
	maxDetail     = 4 << 10
	maxExcerpt    = 120
	maxProblem    = 64 << 10 // of an error's body
	maxHints      = 8
	maxRetryAfter = time.Hour
)

// read is the result that a response is, or its fault.
func (e *endpoint) read(ctx context.Context, resp *http.Response) (any, *fault.Fault) {
	if !e.isSuccess(resp.StatusCode) {
		return nil, e.refusal(ctx, resp)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, e.maxBytes+1))
	switch {
	case err != nil && ctx.Err() != nil:
		f := e.over(ctx)
		f.Execution = fault.Unknown
		return nil, f
	case err != nil:
		return nil, fault.New(fault.Upstream, "%s broke off in the middle of its answer: %v", e.base.Host, err)
	case int64(len(body)) > e.maxBytes:
		f := fault.New(fault.InvalidResult, "%s answered more than %d bytes, which is all that this tool takes; ask for less at once", e.base.Host, e.maxBytes)
		f.Execution = fault.Done
		return nil, f
	}
	return e.value(resp, body)
}

func (e *endpoint) isSuccess(status int) bool {
	for _, s := range e.success {
		if s.has(status) {
			return true
		}
	}
	return false
}

// value is the body as the manifest wants it.
func (e *endpoint) value(resp *http.Response, body []byte) (any, *fault.Fault) {
	said := resp.Header.Get("Content-Type")
	media, _, _ := mime.ParseMediaType(said)
	switch {
	case e.result == "bytes":
		return asBytes(said, body), nil
	case e.result == "text":
		return asText(body)
	case len(bytes.TrimSpace(body)) == 0:
		return e.picked(resp, []byte("null"))
	case utf8.Valid(body) && json.Valid(body):
		return e.picked(resp, body)
	case e.result == "json" || media == "" || isJSON(media) || isHTML(media) || len(e.pick) > 0:
		return nil, e.notJSON(resp, said, body)
	case strings.HasPrefix(media, "text/") || media == "application/xml" || strings.HasSuffix(media, "+xml"):
		return asText(body)
	}
	return asBytes(said, body), nil
}

// picked is the part of JSON that the result is.
func (e *endpoint) picked(resp *http.Response, body []byte) (any, *fault.Fault) {
	if len(e.pick) == 0 {
		return json.RawMessage(body), nil
	}
	v, ok := e.pick.Find(body)
	if !ok {
		f := fault.New(fault.InvalidResult, "%s answered JSON without %s, which is where the result should be", resp.Request.URL.Host, e.pick)
		f.Detail = excerpt([]byte(e.redact(string(body))), maxDetail)
		return nil, f
	}
	return v, nil
}

// notJSON is the fault of something else where JSON was expected. A page of a proxy or a login is no answer of the API, so
// nobody knows whether it ran.
func (e *endpoint) notJSON(resp *http.Response, said string, body []byte) *fault.Fault {
	what := "something that is not JSON"
	if media, _, _ := mime.ParseMediaType(said); isHTML(media) || bytes.HasPrefix(bytes.TrimSpace(body), []byte("<")) {
		what = "a page (HTML)"
	}
	f := fault.New(fault.Upstream, "%s answered %s where JSON was expected (%s, content type %.60q): %s",
		resp.Request.URL.Host, what, e.redact(resp.Status), e.redact(said), excerpt([]byte(e.redact(string(body[:min(len(body), maxProblem)]))), maxExcerpt))
	f.Code = strconv.Itoa(resp.StatusCode)
	return f
}

func asBytes(contentType string, body []byte) worker.Bytes {
	if contentType == "" || !printable(contentType) {
		contentType = "application/octet-stream"
	}
	return worker.Bytes{ContentType: fault.Truncate(contentType, 200), Data: body}
}

func asText(body []byte) (any, *fault.Fault) {
	b, err := marshal(strings.ToValidUTF8(string(body), "\uFFFD"))
	if err != nil {
		return nil, fault.New(fault.Internal, "quote the answer: %v", err)
	}
	return json.RawMessage(b), nil
}

func isJSON(media string) bool { return media == wire.JSON || strings.HasSuffix(media, "+json") }

func isHTML(media string) bool { return media == "text/html" || media == "application/xhtml+xml" }

// refusal is the fault that a status stands for.
func (e *endpoint) refusal(ctx context.Context, resp *http.Response) *fault.Fault {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err != nil && ctx.Err() != nil && len(body) == 0 {
		body = []byte("(its text did not come in time)")
	}
	body = []byte(e.redact(string(body))) // before anything is cut, or a part of a secret would stay
	kind := fault.FromHTTP(resp.StatusCode)
	if kind == "" {
		kind = fault.Upstream // a redirect that cannot be followed, or a status that is no success here
	}
	said, violations := explain(body)
	message := fmt.Sprintf("%s answered %s", resp.Request.URL.Host, e.status(resp))
	if said != "" {
		message += ": " + said
	}
	f := fault.New(kind, "%s", message)
	f.Code = strconv.Itoa(resp.StatusCode)
	f.Detail = excerpt(body, 2*maxDetail)
	f.RetryAfterMs = retryAfter(resp.Header, time.Now()).Milliseconds()
	f.Execution = run(kind, resp)
	if kind == fault.InvalidArguments {
		f.Violations = violations
	}
	return f
}

func (e *endpoint) status(resp *http.Response) string {
	s := strconv.Itoa(resp.StatusCode)
	if t := http.StatusText(resp.StatusCode); t != "" {
		s += " " + t
	}
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode/100 == 3 {
		s += ", which was not followed"
	}
	return s
}

// run is what a status says of the run. A bad gateway had passed the request on, and an answer after a redirect is not
// that of the first request.
func run(kind fault.Kind, resp *http.Response) fault.Execution {
	switch {
	case resp.Request.Response != nil, resp.StatusCode == http.StatusBadGateway, resp.StatusCode < 400:
		return fault.Unknown
	}
	return kind.Spec().Execution
}

// retryAfter is how long a server asks to wait: retry-after-ms, or Retry-After of RFC 9110 in seconds or as a date; zero
// where it says nothing that can be read.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms >= 0 {
		return time.Duration(min(ms, float64(maxRetryAfter.Milliseconds()))) * time.Millisecond
	}
	v := h.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(v, 64); err == nil && seconds >= 0 {
		return time.Duration(min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil {
		return min(max(0, at.Sub(now)), maxRetryAfter)
	}
	return 0
}

// explain is what the body of an error says for people: the title and detail of RFC 9457, or what other APIs have in
// their place. Its errors become violations.
func explain(body []byte) (said string, violations []fault.Violation) {
	var p struct {
		Title       flexible   `json:"title"`
		Detail      flexible   `json:"detail"`
		Message     flexible   `json:"message"`
		Error       flexible   `json:"error"`
		Description flexible   `json:"error_description"`
		Errors      []flexible `json:"errors"`
	}
	_ = json.Unmarshal(body, &p) // what is of another type than these says nothing to us
	var parts []string
	for _, s := range []flexible{p.Title, p.Detail, p.Message, p.Error, p.Description} {
		if s.text != "" && !strings.Contains(strings.Join(parts, ": "), s.text) {
			parts = append(parts, s.text)
		}
	}
	for _, v := range p.Errors[:min(len(p.Errors), maxHints)] {
		if v.pointer != "" {
			violations = append(violations, fault.Violation{Pointer: v.pointer, Expected: v.text})
		}
		if len(parts) < 3 && v.text != "" {
			parts = append(parts, v.text)
		}
	}
	return strings.Join(parts, ": "), violations
}

// A flexible is text, or an object that has text in it, or nothing.
type flexible struct {
	text, pointer string
}

func (f *flexible) UnmarshalJSON(b []byte) error {
	var o struct {
		Message, Detail, Title, Description, Pointer any
	}
	var s string
	switch {
	case json.Unmarshal(b, &s) == nil:
		f.text = oneParagraph(s)
	case json.Unmarshal(b, &o) == nil:
		for _, v := range []any{o.Detail, o.Message, o.Title, o.Description} {
			if s, ok := v.(string); ok && f.text == "" {
				f.text = oneParagraph(s)
			}
		}
		if p, ok := o.Pointer.(string); ok {
			f.pointer = fault.Truncate(strings.TrimPrefix(p, "#"), maxExcerpt)
		}
	}
	return nil
}

// oneParagraph is text on one line, of a bounded length.
func oneParagraph(s string) string {
	return fault.Truncate(strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " "), 300)
}

// excerpt is the beginning of a body, as text.
func excerpt(body []byte, most int) string {
	body = body[:min(len(body), 2*most+utf8.UTFMax)]
	s := strings.Join(strings.Fields(strings.ToValidUTF8(string(body), "\uFFFD")), " ")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
	return fault.Truncate(s, most)
}
