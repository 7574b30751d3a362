package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// ErrSignal is the cause of a context that Signals ended.
var ErrSignal = errors.New("told to stop by a signal")

// Signals is a context that ends at the first SIGINT or SIGTERM, which means: drain. The second one ends the process at
// once with ExitInterrupted. This goes on until ctx ends; a program calls it once, from main.
func Signals(ctx context.Context) context.Context {
	ctx2, cancel := context.WithCancelCause(ctx)
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer signal.Stop(c)
		defer cancel(context.Cause(ctx))
		select {
		case <-ctx.Done():
			return
		case <-c:
			fmt.Fprintln(os.Stderr, "stopping in good order; Ctrl-C again ends it at once")
			cancel(ErrSignal)
		}
		select {
		case <-ctx.Done():
		case <-c:
			os.Exit(ExitInterrupted)
		}
	}()
	return ctx2
}
