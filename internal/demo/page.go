package demo

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

const pageHTML = `<!doctype html>
<html lang="en"><head><title>Toolbus demo page</title></head>
<body><h1>It works</h1>
<p>This page is served by the demo itself, so that http_fetch has something to fetch.</p>
<ul><li><a href="/slow?ms=2000">/slow?ms=2000</a> takes its time</li>
<li><a href="/status/503">/status/503</a> fails as you like</li>
<li><a href="/loop">/loop</a> redirects for ever</li></ul>
</body></html>
`

// ServePage serves a small page on a free port of 127.0.0.1, for http_fetch: / is HTML, /slow answers after ?ms
// milliseconds (5,000; at most a minute), /status/<code> answers with that status (429 and 503 with Retry-After: 1), and
// /loop redirects to itself. It ends with ctx or with stop, whichever is first; stop returns when it has ended, and may
// be called twice.
func ServePage(ctx context.Context) (url string, stop func(), err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("serve the demo page: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &http.Server{
		Handler:           pageRoutes(),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	context.AfterFunc(ctx, func() { _ = s.Close() })
	return "http://" + l.Addr().String() + "/", func() { cancel(); <-done }, nil
}

func pageRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, pageHTML)
	})
	mux.HandleFunc("GET /slow", func(w http.ResponseWriter, r *http.Request) {
		ms, err := strconv.Atoi(r.FormValue("ms"))
		if err != nil || ms < 0 || ms > 60_000 {
			ms = 5_000
		}
		wait := time.NewTimer(time.Duration(ms) * time.Millisecond)
		defer wait.Stop()
		select {
		case <-wait.C:
			fmt.Fprintf(w, "that took %d ms\n", ms)
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("GET /status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, err := strconv.Atoi(r.PathValue("code"))
		if err != nil || code < 200 || code > 599 {
			http.Error(w, "the status must be 200 to 599", http.StatusBadRequest)
			return
		}
		if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, http.StatusText(code), code)
	})
	mux.Handle("GET /loop", http.RedirectHandler("/loop", http.StatusFound))
	return mux
}
