package admin

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
)

// A Level is the level of a log, which changes while the program runs. Zero is info.
type Level struct {
	now slog.LevelVar

	mu    sync.Mutex
	usual slog.Level // to go back to from debug
}

var _ slog.Leveler = (*Level)(nil)

// Level is the level now.
func (l *Level) Level() slog.Level { return l.now.Level() }

// Parse sets it to debug, info, warn or error; empty is info.
func (l *Level) Parse(s string) error {
	to, ok := map[string]slog.Level{"": slog.LevelInfo, "debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}[strings.ToLower(s)]
	if !ok {
		return fmt.Errorf("log level %q: expected debug, info, warn or error", s)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if to != slog.LevelDebug {
		l.usual = to
	}
	l.now.Set(to)
	return nil
}

// Toggle goes to debug, and from debug back.
func (l *Level) Toggle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now.Level() == slog.LevelDebug {
		l.now.Set(l.usual)
	} else {
		l.now.Set(slog.LevelDebug)
	}
}

// String is it in small letters.
func (l *Level) String() string { return strings.ToLower(l.Level().String()) }

// OnSignal toggles the level at every SIGUSR1 until stop is called, which waits for the goroutine.
func (l *Level) OnSignal(log *slog.Logger) (stop func()) {
	c, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(c, syscall.SIGUSR1)
	var hearing sync.WaitGroup
	hearing.Go(func() {
		for {
			select {
			case <-c:
				l.Toggle()
				log.Warn("the level of the log was changed", "level", l.String(), "by", "SIGUSR1")
			case <-done:
				return
			}
		}
	})
	return func() { signal.Stop(c); close(done); hearing.Wait() }
}
