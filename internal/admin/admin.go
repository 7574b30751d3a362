// Package admin is what operators ask a running program, over HTTP:
//
//	GET /metrics    the figures, as Prometheus text or OpenMetrics
//	GET /healthz    200 as long as the process answers, whatever else is wrong
//	GET /readyz     200 where work should come here, with a line on each thing that was looked at; else 503
//	GET /loglevel   the level of the log; PUT changes it, from this machine only
//
// and on a listener of its own, because it shows memory and costs time:
//
//	GET /debug/pprof/...
//
// Neither is there unless it is asked for, and neither asks who is there: keep them away from networks that are not yours.
package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// A Config says what is served. Where both addresses are empty nothing is.
type Config struct {
	Addr      string // host:port, of all but profiles
	PprofAddr string // host:port, of profiles

	Metrics http.Handler                 // nil: there are none
	Ready   func(context.Context) Report // nil: always ready. It must return by the end of its context
	Level   *Level                       // nil: cannot be changed
	Logger  *slog.Logger                 // nil discards
}

const (
	readyTime = 2 * time.Second // for Config.Ready to look
	closeTime = 2 * time.Second // for requests under way when the server is closed
	maxHeader = 16 << 10
)

// A Server serves until it is closed.
type Server struct {
	log          *slog.Logger
	admin, pprof *http.Server
	at, pprofAt  net.Addr
	serving      sync.WaitGroup
	ready        func(context.Context) Report
	level        *Level
}

// Start listens and serves. It returns nil where there is nothing to serve; a nil Server may be closed.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Addr == "" && cfg.PprofAddr == "" {
		return nil, nil
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{log: cfg.Logger, ready: cfg.Ready, level: cfg.Level}
	var err error
	if s.admin, s.at, err = s.listen(ctx, cfg.Addr, "metrics_addr", s.routes(cfg.Metrics), 30*time.Second); err != nil {
		return nil, err
	}
	if s.pprof, s.pprofAt, err = s.listen(ctx, cfg.PprofAddr, "pprof_addr", profiles(), 0); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// listen serves on an address, where there is one. A profile takes as long as it was asked to: then write is 0.
func (s *Server) listen(ctx context.Context, addr, setting string, h http.Handler, write time.Duration) (*http.Server, net.Addr, error) {
	if addr == "" {
		return nil, nil, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: expected host:port that is free, such as 127.0.0.1:9464: %w", setting, err)
	}
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: write, IdleTimeout: time.Minute,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.serving.Go(func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("operators are not answered any more", "addr", addr, "error", err)
		}
	})
	return srv, l.Addr(), nil
}

// Addr is where all but profiles are served, PprofAddr where those are; nil where they are not.
func (s *Server) Addr() net.Addr      { return s.at }
func (s *Server) PprofAddr() net.Addr { return s.pprofAt }

// Close lets requests under way end, for two seconds at most, and waits until nobody serves.
func (s *Server) Close() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	for _, srv := range []*http.Server{s.admin, s.pprof} {
		if srv == nil {
			continue
		}
		if err := srv.Shutdown(ctx); err != nil {
			_ = srv.Close() // what hangs is cut off
		}
	}
	s.serving.Wait()
}

func (s *Server) routes(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	if metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "alive") })
	mux.HandleFunc("GET /readyz", s.readyz)
	if s.level != nil {
		mux.HandleFunc("GET /loglevel", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, s.level.String()) })
		mux.HandleFunc("PUT /loglevel", s.setLevel)
	}
	return mux
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	var report Report
	if s.ready != nil {
		ctx, cancel := context.WithTimeout(r.Context(), readyTime)
		defer cancel()
		report = s.ready(ctx)
	}
	status := http.StatusOK
	if report.State() == Down {
		status = http.StatusServiceUnavailable
	}
	say(w, status, report.String())
}

// setLevel is for who is on this machine: whoever scrapes the figures from elsewhere should not fill the disk.
func (s *Server) setLevel(w http.ResponseWriter, r *http.Request) {
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !from.Addr().Unmap().IsLoopback() {
		say(w, http.StatusForbidden, "the level of the log is changed from the machine itself, or with SIGUSR1")
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 64))
	if err == nil {
		err = s.level.Parse(strings.TrimSpace(string(body)))
	}
	if err != nil {
		say(w, http.StatusBadRequest, err.Error())
		return
	}
	s.log.Warn("the level of the log was changed", "level", s.level.String(), "by", r.RemoteAddr)
	say(w, http.StatusOK, s.level.String())
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // who asked may be gone
}

func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
