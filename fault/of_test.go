package fault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

type status int

func (s status) Error() string   { return fmt.Sprintf("status %d", int(s)) }
func (s status) HTTPStatus() int { return int(s) }

type answer struct {
	code  int
	text  string
	after time.Duration
}

func (a answer) Error() string             { return a.text }
func (a answer) StatusCode() int           { return a.code }
func (a answer) RetryAfter() time.Duration { return a.after }

func TestOf(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want Kind
		code string
	}{
		{"deadline of a context", context.DeadlineExceeded, Timeout, ""},
		{"a timeout, wrapped", fmt.Errorf("search: %w", context.DeadlineExceeded), Timeout, ""},
		{"cancelled, wrapped", fmt.Errorf("search: %w", context.Canceled), Cancelled, ""},
		{"speaks of cancelling only", errors.New("context canceled by the user"), Upstream, ""},
		{"rate limit in words", errors.New("API Rate Limit exceeded"), RateLimited, ""},
		{"too many requests", errors.New("Too Many Requests"), RateLimited, ""},
		{"rate limit beside 403", answer{403, "secondary rate limit", 0}, RateLimited, "403"},
		{"an HTTP status", status(404), NotFound, "404"},
		{"a status code", answer{503, "unavailable", 0}, Unavailable, "503"},
		{"a status that is no failure", status(204), Upstream, "204"},
		{"connection refused", errors.New("dial tcp 127.0.0.1:1: connect: connection refused"), Unavailable, ""},
		{"connection reset", errors.New("read tcp: connection reset by peer"), Upstream, ""},
		{"broken pipe", errors.New("write: broken pipe"), Upstream, ""},
		{"end of file", fmt.Errorf("read: %w", io.ErrUnexpectedEOF), Upstream, ""},
		{"anything else", errors.New("it hurts"), Upstream, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := Of(tt.err)
			if f.Kind != tt.want || f.Code != tt.code {
				t.Errorf("Of(%q) = %s (code %q), want %s (code %q)", tt.err, f.Kind, f.Code, tt.want, tt.code)
			}
			if f.Execution != tt.want.Spec().Execution {
				t.Errorf("Of(%q).Execution = %s, want %s", tt.err, f.Execution, tt.want.Spec().Execution)
			}
			if !errors.Is(f, tt.err) {
				t.Errorf("Of(%q) forgot its cause", tt.err)
			}
		})
	}
}

func TestOfKeepsFaults(t *testing.T) {
	if f := Of(nil); f != nil {
		t.Errorf("Of(nil) = %v, want nil", f)
	}
	f := New(Denied, "no")
	if got := Of(fmt.Errorf("search: %w", f)); got != f {
		t.Errorf("Of(wrapped fault) = %v, want the same fault", got)
	}
	var none *Fault
	if got := Of(none); got == nil || got.Kind != Internal {
		t.Errorf("Of(nil fault in an error) = %v, want internal", got)
	}
}

func TestOfKeepsRetryAfter(t *testing.T) {
	for after, want := range map[time.Duration]int64{
		-time.Second: 0, 0: 0, 1: 1, time.Millisecond: 1, 1500 * time.Microsecond: 2, time.Minute: 60_000, 1<<63 - 1: 9223372036855,
	} {
		if got := Of(answer{429, "slow down", after}).RetryAfterMs; got != want {
			t.Errorf("RetryAfterMs for %s = %d, want %d", after, got, want)
		}
	}
}

func TestOfBoundsTheMessage(t *testing.T) {
	f := Of(errors.New(strings.Repeat("é", 1<<20) + "\xff"))
	if len(f.Message) > maxMessage || !utf8.ValidString(f.Message) {
		t.Errorf("message has %d bytes (valid %v), want at most %d, valid", len(f.Message), utf8.ValidString(f.Message), maxMessage)
	}
}

func TestFromHTTP(t *testing.T) {
	want := map[Kind][]int{
		InvalidArguments: {400, 422},
		Denied:           {401, 403},
		NotFound:         {404, 410},
		Unsupported:      {405, 501},
		Timeout:          {408},
		RateLimited:      {429},
		Unavailable:      {502, 503},
		Upstream:         {500, 504, 505, 599, 999},
		Failed:           {402, 409, 418, 451, 499},
		"":               {-1, 0, 100, 200, 204, 304, 399},
	}
	for kind, list := range want {
		for _, status := range list {
			if got := FromHTTP(status); got != kind {
				t.Errorf("FromHTTP(%d) = %q, want %q", status, got, kind)
			}
		}
	}
}

func TestTruncate(t *testing.T) {
	tests := []struct {
		s    string
		max  int
		want string
	}{
		{"", 0, ""}, {"abc", 3, "abc"}, {"abcdef", 5, "ab…"}, {"ééééé", 8, "éé…"}, {"ééé", 2, "é"}, {"ééé", -1, ""},
		{"\x80\x80\x80\x80\x80\x80\x80\x80", 7, "\x80\x80\x80\x80…"},
	}
	for _, tt := range tests {
		if got := Truncate(tt.s, tt.max); got != tt.want {
			t.Errorf("Truncate(%q, %d) = %q, want %q", tt.s, tt.max, got, tt.want)
		}
	}
}

func FuzzTruncate(f *testing.F) {
	f.Add("héllo, wörld", 7)
	f.Fuzz(func(t *testing.T, s string, max int) {
		got := Truncate(s, max)
		if len(got) > len(s) || max >= 0 && len(got) > max {
			t.Errorf("Truncate(%q, %d) = %q, too long", s, max, got)
		}
		if utf8.ValidString(s) && !utf8.ValidString(got) && max > 3 {
			t.Errorf("Truncate(%q, %d) = %q, split a rune", s, max, got)
		}
	})
}
