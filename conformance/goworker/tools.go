package main

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

func tools() []worker.Tool {
	c := &counter{}
	return []worker.Tool{
		{Manifest: tool.Manifest{ID: "conf_echo", Effect: tool.Read}, Handler: worker.HandlerFunc(echo)},
		worker.Func(read("conf_size"), size),
		worker.Func(read("conf_add"), add),
		worker.Func(read("conf_fail"), fail),
		worker.Func(read("conf_crash"), crash),
		worker.Func(read("conf_sleep"), sleep),
		worker.Func(read("conf_context"), told),
		worker.Func(read("conf_stream"), stream),
		worker.Func(read("conf_big"), big),
		worker.Func(tool.Manifest{ID: "conf_count", Effect: tool.Write, KeepsKeys: true}, c.count),
	}
}

func read(id string) tool.Manifest { return tool.Manifest{ID: id, Effect: tool.Read} }

type empty struct{}

func echo(_ context.Context, c *worker.Call) (any, error) { return c.Args, nil }

type data struct {
	Data string `json:"data"`
}

type bytes struct {
	Bytes int `json:"bytes"`
}

func size(_ context.Context, in data) (bytes, error) { return bytes{len(in.Data)}, nil }

func big(_ context.Context, in bytes) (data, error) {
	if in.Bytes < 0 || in.Bytes > wire.MaxBlob {
		return data{}, fault.New(fault.InvalidArguments, "bytes: expected 0 to %d, got %d", wire.MaxBlob, in.Bytes)
	}
	return data{strings.Repeat("x", in.Bytes)}, nil
}

type terms struct {
	A int64 `json:"a"`
	B int64 `json:"b"`
}

type sum struct {
	Sum int64 `json:"sum"`
}

func add(_ context.Context, in terms) (sum, error) { return sum{in.A + in.B}, nil }

// A failure is the fault with which conf_fail is to fail.
type failure struct {
	Kind         fault.Kind      `json:"kind"`
	Message      string          `json:"message"`
	Code         string          `json:"code,omitempty"`
	Detail       string          `json:"detail,omitempty"`
	RetryAfterMs int64           `json:"retry_after_ms,omitempty"`
	Execution    fault.Execution `json:"execution,omitempty"`
}

func fail(_ context.Context, in failure) (empty, error) {
	return empty{}, &fault.Fault{Kind: in.Kind, Message: in.Message, Code: in.Code, Detail: in.Detail,
		RetryAfterMs: in.RetryAfterMs, Execution: in.Execution}
}

func crash(context.Context, empty) (empty, error) { panic("conf_crash was asked to") }

type nap struct {
	Ms              int64 `json:"ms"`
	ProgressEveryMs int64 `json:"progress_every_ms,omitempty"`
	IgnoreCancel    bool  `json:"ignore_cancel,omitempty"`
}

type slept struct {
	Slept int64 `json:"slept"`
}

func sleep(ctx context.Context, in nap) (slept, error) {
	stop := ctx.Done()
	if in.IgnoreCancel {
		stop = nil
	}
	var ticks <-chan time.Time
	if in.ProgressEveryMs > 0 {
		t := time.NewTicker(time.Duration(in.ProgressEveryMs) * time.Millisecond)
		defer t.Stop()
		ticks = t.C
	}
	begun := time.Now()
	end := time.NewTimer(time.Duration(in.Ms) * time.Millisecond)
	defer end.Stop()
	for {
		select {
		case <-stop:
			return slept{}, ctx.Err()
		case <-ticks:
			worker.Progress(ctx, float64(min(time.Since(begun).Milliseconds(), in.Ms)), float64(in.Ms), "asleep")
		case <-end.C:
			return slept{in.Ms}, nil
		}
	}
}

// A saying is what a call was told.
type saying struct {
	Turn        string `json:"turn"`
	Call        string `json:"call"`
	Attempt     int    `json:"attempt"`
	Session     string `json:"session"`
	Key         string `json:"key"`
	TimeoutMs   int64  `json:"timeout_ms"`
	Traceparent string `json:"traceparent"`
}

func told(ctx context.Context, _ empty) (saying, error) {
	c, _ := worker.FromContext(ctx)
	s := saying{Turn: c.Ref.Turn, Call: c.Ref.Call, Attempt: c.Ref.Attempt, Session: c.Session, Key: c.Key}
	s.Traceparent = wire.Get(c.Header, wire.HeaderTraceparent)
	if deadline, ok := ctx.Deadline(); ok {
		s.TimeoutMs = time.Until(deadline).Milliseconds()
	}
	return s, nil
}

type pieces struct {
	Pieces int `json:"pieces"`
}

func stream(ctx context.Context, in pieces) (pieces, error) {
	for i := range in.Pieces {
		if err := worker.Partial(ctx, map[string]int{"i": i + 1}); err != nil {
			return pieces{}, err
		}
	}
	return in, nil
}

// A counter is what conf_count counts with, for as long as the process lives.
type counter struct{ runs atomic.Int64 }

type counted struct {
	Runs int64 `json:"runs"`
	N    int64 `json:"n"`
}

func (c *counter) count(_ context.Context, in struct {
	N int64 `json:"n"`
}) (counted, error) {
	return counted{c.runs.Add(1), in.N}, nil
}
