// Goworker is the conformance worker in Go: the tools of conformance/README.md on package worker. The environment says
// where and how; SIGTERM drains.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "goworker:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	concurrency := 0
	if v := os.Getenv("TOOLBUS_CONCURRENCY"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			return fmt.Errorf("TOOLBUS_CONCURRENCY: expected a number from 1, got %.40q", v)
		}
		concurrency = n
	}
	conn, err := bus.Connect(ctx, bus.Config{
		URL:    os.Getenv("TOOLBUS_NATS_URL"),
		Prefix: os.Getenv("TOOLBUS_PREFIX"),
		Name:   "conformance worker in Go",
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	w, err := worker.New(worker.Config{Bus: conn, Tools: tools(), Concurrency: concurrency, Grace: 10 * time.Second})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}
