package fault

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// maxMessage bounds what a foreign error may say, in bytes.
const maxMessage = 4 << 10

// Of classifies an error that somebody else made. Nil stays nil, and a *Fault anywhere in the chain is returned as it
// is. For others the first of these that holds decides:
//
//   - the innermost error reads exactly "context canceled": Cancelled (a core cannot import context)
//   - Timeout() bool says true: Timeout
//   - the text speaks of a rate limit or of too many requests: RateLimited, also beside a status such as 403
//   - HTTPStatus() int or StatusCode() int: FromHTTP, with the status as the code
//   - the text says "connection refused": Unavailable
//   - else Upstream: transient and of unknown execution, the safer default of seed 000 §1.3. Connections that were
//     reset, broken or ended in mid-call are among these.
//
// RetryAfter() time.Duration, where an error has it, is kept.
//
// What Of says of the run is about the one request that failed. A handler that had changed something before that
// request must say so itself, by returning a *Fault whose Execution is Unknown.
func Of(err error) *Fault {
	if err == nil {
		return nil
	}
	var f *Fault
	if errors.As(err, &f) {
		if f == nil {
			return New(Internal, "a nil *fault.Fault was returned as an error; return nil itself")
		}
		return f
	}

	kind, code := classify(err)
	f = New(kind, "%s", Truncate(strings.ToValidUTF8(err.Error(), "\uFFFD"), maxMessage))
	f.Code = code
	f.cause = err
	var hint interface{ RetryAfter() time.Duration }
	if errors.As(err, &hint) && hint.RetryAfter() > 0 {
		f.RetryAfterMs = int64((hint.RetryAfter()-1)/time.Millisecond) + 1 // rounded up: never earlier
	}
	return f
}

// classify is the list in the comment of Of. The code is the HTTP status, where the error has one.
func classify(err error) (kind Kind, code string) {
	status, ok := statusOf(err)
	if ok {
		code = strconv.Itoa(status)
	}

	var t interface{ Timeout() bool }
	text := strings.ToLower(Truncate(err.Error(), maxMessage))
	switch {
	case innermost(err).Error() == "context canceled":
		return Cancelled, code
	case errors.As(err, &t) && t.Timeout():
		return Timeout, code
	case contains(text, "rate limit", "rate_limit", "too many requests"):
		return RateLimited, code
	case ok && FromHTTP(status) != "":
		return FromHTTP(status), code
	case strings.Contains(text, "connection refused"):
		return Unavailable, code
	}
	return Upstream, code
}

// FromHTTP is the kind that an HTTP status stands for: the union of what the seeds say (design §12). It is empty for
// what is no failure, below 400.
func FromHTTP(status int) Kind {
	switch status {
	case 400, 422:
		return InvalidArguments
	case 401, 403:
		return Denied
	case 404, 410:
		return NotFound
	case 405, 501:
		return Unsupported
	case 408:
		return Timeout
	case 429:
		return RateLimited
	case 502, 503:
		return Unavailable
	}
	switch {
	case status < 400:
		return ""
	case status < 500:
		return Failed
	}
	return Upstream
}

func statusOf(err error) (int, bool) {
	var h interface{ HTTPStatus() int }
	if errors.As(err, &h) {
		return h.HTTPStatus(), true
	}
	var s interface{ StatusCode() int }
	if errors.As(err, &s) {
		return s.StatusCode(), true
	}
	return 0, false
}

func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

func contains(text string, any ...string) bool {
	for _, s := range any {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}
