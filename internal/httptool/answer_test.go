package httptool

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
)

func TestEveryStatus(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Path[1:])
		w.WriteHeader(status)
	})
	e := open(t, Config{URL: s.URL + "/{status}"})
	for status := 200; status < 600; status++ {
		got, f := ask(t, e, fmt.Sprintf(`{"status":%d}`, status))
		if status < 300 {
			if f != nil || got != "null" {
				t.Errorf("%d: %s, %v, want null", status, got, f)
			}
			continue
		}
		want := fault.FromHTTP(status)
		if want == "" {
			want = fault.Upstream
		}
		if f == nil || f.Kind != want || f.Code != strconv.Itoa(status) {
			t.Errorf("%d: fault %v, want %s with the status as its code", status, f, want)
			continue
		}
		run := want.Spec().Execution
		if status < 400 || status == 502 {
			run = fault.Unknown
		}
		if f.Run() != run {
			t.Errorf("%d: run %s, want %s", status, f.Run(), run)
		}
	}
}

func TestSuccessIsWhatTheManifestSays(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); fmt.Fprint(w, `{"found":false}`) })
	if got, f := ask(t, open(t, Config{URL: s.URL, Success: []Status{"200", "404"}}), "{}"); f != nil || got != `{"found":false}` {
		t.Errorf("%s, %v, want the 404 as a result", got, f)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tc := range []struct {
		name, value string
		want        time.Duration
	}{
		{"Retry-After", "7", 7 * time.Second},
		{"Retry-After", "1.5", 1500 * time.Millisecond},
		{"Retry-After", "Fri, 02 Jan 2026 03:04:35 GMT", 30 * time.Second},
		{"Retry-After", "Fri, 02 Jan 2026 03:04:00 GMT", 0},
		{"Retry-After", "99999999999999", maxRetryAfter},
		{"Retry-After", "-1", 0},
		{"Retry-After", "NaN", 0},
		{"Retry-After", "soon", 0},
		{"retry-after-ms", "250", 250 * time.Millisecond},
		{"retry-after-ms", "1e300", maxRetryAfter},
		{"retry-after-ms", "-5", 0},
	} {
		h := http.Header{}
		h.Set(tc.name, tc.value)
		if got := retryAfter(h, now); got != tc.want {
			t.Errorf("%s: %s = %v, want %v", tc.name, tc.value, got, tc.want)
		}
	}
}

func TestErrorsSayWhatTheServerSays(t *testing.T) {
	for body, want := range map[string]string{
		`{"type":"about:blank","title":"Out of credit","detail":"You have 30, and it costs 50."}`: "403 Forbidden: Out of credit: You have 30, and it costs 50.",
		`{"error":{"message":"no such model"}}`:                                                   "403 Forbidden: no such model",
		`{"error":"invalid_token","error_description":"expired"}`:                                 "403 Forbidden: invalid_token: expired",
		`{"message":"a\n b"}`:            "403 Forbidden: a b",
		`{"errors":["one","two"]}`:       "403 Forbidden: one: two",
		`{"errors":{"a":1},"title":"T"}`: "403 Forbidden: T",
		`not JSON`:                       "403 Forbidden",
	} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403); fmt.Fprint(w, body) })
		if _, f := ask(t, open(t, Config{URL: s.URL}), "{}"); f == nil || !strings.HasSuffix(f.Message, want) {
			t.Errorf("%s: fault %v, want …%s", body, f, want)
		}
	}
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(422)
		fmt.Fprint(w, `{"title":"Invalid","errors":[{"detail":"must be positive","pointer":"#/age"}]}`)
	})
	_, f := ask(t, open(t, Config{URL: s.URL}), "{}")
	if f == nil || len(f.Violations) != 1 || f.Violations[0].Pointer != "/age" {
		t.Errorf("fault %v, %v, want a violation of /age", f, f.Violations)
	}
}

func TestResults(t *testing.T) {
	for _, tc := range []struct{ name, contentType, body, result, pick, want string }{
		{"json", "application/json", ` {"a":1}`, "", "", ` {"a":1}`},
		{"json by another name", "text/plain", `[1]`, "", "", `[1]`},
		{"pick", "application/json", `{"data":[{"id":7}]}`, "", "/data/0/id", `7`},
		{"pick of nothing", "application/json", `{"data":[]}`, "", "/data/0/id", "invalid_result"},
		{"text", "text/plain; charset=utf-8", "a\n\"b\"", "", "", `"a\n\"b\""`},
		{"text that is not UTF-8", "text/plain", "a\xffb", "", "", "\"a\uFFFDb\""},
		{"text on demand", "text/html", "<p>", "text", "", `"<p>"`},
		{"binary", "image/png", "\x89PNG", "", "", "image/png \x89PNG"},
		{"bytes on demand", "application/json", "{}", "bytes", "", "application/json {}"},
		{"HTML", "text/html", "<!doctype html>\n<title>Log in</title>", "", "", "upstream"},
		{"HTML under a wrong name", "application/json", "<html>", "", "", "upstream"},
		{"wrong JSON", "application/json", `{"a":`, "", "", "upstream"},
		{"text where JSON must be", "text/plain", "hello", "json", "", "upstream"},
		{"no content type", "", "\x00\x01", "", "", "application/octet-stream"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if tc.contentType != "" {
					w.Header().Set("Content-Type", tc.contentType)
				}
				fmt.Fprint(w, tc.body)
			})
			got, f := ask(t, open(t, Config{URL: s.URL, Result: tc.result, Pick: tc.pick}), "{}")
			if f != nil {
				got = string(f.Kind)
			}
			if !strings.HasPrefix(got, tc.want) {
				t.Errorf("%s (%v), want %s", got, f, tc.want)
			}
			if tc.name == "HTML" && !strings.Contains(f.Message, "a page (HTML) where JSON was expected") || tc.name == "HTML" && !strings.Contains(f.Message, "Log in") {
				t.Errorf("%v, want to be told of the page and its beginning", f)
			}
		})
	}
}

func TestResponsesAreBounded(t *testing.T) {
	big := serve(t, func(w http.ResponseWriter, r *http.Request) { // 10 GB
		w.Header().Set("Content-Type", "application/json")
		piece := bytes.Repeat([]byte(" "), 1<<20)
		for range 10 << 10 {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	bomb := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write(make([]byte, 32<<20))
		_ = z.Close()
	})
	for _, s := range []string{big.URL, bomb.URL} {
		if _, f := ask(t, open(t, Config{URL: s, MaxBytes: 1 << 20}), "{}"); f == nil || f.Kind != fault.InvalidResult || f.Run() != fault.Done || !strings.Contains(f.Message, "more than 1048576 bytes") {
			t.Errorf("fault %v, want invalid_result, done", f)
		}
	}
	headers := serve(t, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Big", strings.Repeat("x", 1<<20)) })
	if _, f := ask(t, open(t, Config{URL: headers.URL}), "{}"); f == nil || f.Kind != fault.Upstream || f.Run() != fault.Unknown {
		t.Errorf("a megabyte of headers: %v, want upstream, unknown", f)
	}
}

// A server that is slow is cut off by the call, wherever it is slow.
func TestSlowServers(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"headers": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"drip": func(w http.ResponseWriter, r *http.Request) {
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte(" "))
				w.(http.Flusher).Flush()
				<-tick.C
			}
		},
		"drip of an error": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			gone := make(chan struct{})
			s := serve(t, func(w http.ResponseWriter, r *http.Request) { h(w, r); close(gone) })
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, f := askCtx(ctx, t, open(t, Config{URL: s.URL}), "{}")
			if want := fault.Timeout; f == nil || f.Kind != want && name != "drip of an error" || f.Run() != fault.Unknown {
				t.Errorf("fault %v, want %s, unknown", f, want)
			}
			select {
			case <-gone:
			case <-time.After(20 * time.Second):
				t.Error("the server was not told")
			}
		})
	}
}

func TestCancelAbortsTheRequest(t *testing.T) {
	came, gone := make(chan struct{}), make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(came)
		<-r.Context().Done()
		close(gone)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-came; cancel() }()
	if _, f := askCtx(ctx, t, open(t, Config{URL: s.URL}), "{}"); f == nil || f.Kind != fault.Cancelled || f.Run() != fault.Unknown {
		t.Errorf("fault %v, want cancelled, unknown", f)
	}
	<-gone
}

// raw is a server that does to connections what f does.
func raw(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f(c)
			_ = c.Close()
		}
	}()
	return "http://" + l.Addr().String()
}

func readRequest(c net.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, _ = c.Read(make([]byte, 4096))
}

func TestBrokenConnections(t *testing.T) {
	for name, f := range map[string]func(net.Conn){
		"closed": readRequest,
		"reset":  func(c net.Conn) { readRequest(c); _ = c.(*net.TCPConn).SetLinger(0) },
		"in mid-body": func(c net.Conn) {
			readRequest(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"a\"")
		},
		"garbage": func(c net.Conn) { readRequest(c); _, _ = io.WriteString(c, "hello\r\n\r\n") },
	} {
		if _, f := ask(t, open(t, Config{URL: raw(t, f)}), "{}"); f == nil || f.Kind != fault.Upstream || f.Run() != fault.Unknown {
			t.Errorf("%s: %v, want upstream, unknown", name, f)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_ = l.Close()
	for _, url := range []string{"http://" + at, "http://no-such-host.invalid"} {
		if _, f := ask(t, open(t, Config{URL: url}), "{}"); f == nil || f.Kind != fault.Unavailable || f.Run() != fault.NotStarted {
			t.Errorf("%s: %v, want unavailable, not_started", url, f)
		}
	}
}

// net/http sends again what broke on a connection that was used before, where it takes it to be safe: not so here.
func TestAWriteIsNotSentTwice(t *testing.T) {
	var requests atomic.Int32
	url := raw(t, func(c net.Conn) {
		for i := range 2 {
			readRequest(c)
			requests.Add(1)
			if i == 0 {
				_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
			}
		}
	})
	e := openAs(t, Config{Method: "POST", URL: url, AllowPrivate: true}, tool.Manifest{ID: "t", Effect: tool.Write})
	if _, f := ask(t, e, "{}"); f != nil {
		t.Fatal(f)
	}
	if _, f := ask(t, e, "{}"); f == nil || f.Run() != fault.Unknown || requests.Load() != 2 {
		t.Errorf("fault %v after %d requests, want one of unknown run, and two requests", f, requests.Load())
	}
}

func TestConnectionsAreReused(t *testing.T) {
	at := map[string]bool{}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		at[r.RemoteAddr] = true
		w.WriteHeader(500)
		_, _ = w.Write(make([]byte, 10_000))
	})
	e := open(t, Config{URL: s.URL})
	for range 5 {
		_, _ = ask(t, e, "{}")
	}
	if len(at) != 1 {
		t.Errorf("%d connections for five calls, want 1", len(at))
	}
}
