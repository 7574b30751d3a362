package executor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

type area struct {
	Width  int `json:"width"`
	Height int `json:"height"`
}

// An executor within one's own program: a call that goes well at its second attempt, and one that cannot.
func Example() {
	dir, err := os.MkdirTemp("", "toolbus")
	check(err)
	defer os.RemoveAll(dir)
	server, err := bus.StartServer(bus.ServerConfig{Dir: dir, DontListen: true, Lazy: true})
	check(err)
	defer server.Shutdown()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	// A worker, as it would run elsewhere.
	conn, err := bus.Connect(ctx, bus.Config{Server: server})
	check(err)
	defer conn.Close()
	tries := 0
	w, err := worker.New(worker.Config{Bus: conn, Tools: []worker.Tool{
		worker.Func(tool.Manifest{ID: "area", Effect: tool.Read}, func(_ context.Context, in area) (int, error) {
			if tries++; tries == 1 {
				return 0, errors.New("the ruler slipped") // what nobody classified is transient
			}
			return in.Width * in.Height, nil
		}),
	}})
	check(err)
	worked := make(chan error, 1)
	go func() { worked <- w.Run(ctx) }()
	<-w.Ready()

	// The registry knows who is there, the executor runs calls.
	own, err := bus.Connect(ctx, bus.Config{Server: server})
	check(err)
	defer own.Close()
	reg := registry.New(registry.Config{Bus: own})
	known := make(chan error, 1)
	go func() { known <- reg.Run(ctx) }()
	<-reg.Ready()
	ex, err := executor.New(executor.Config{Bus: own, Registry: reg, Observer: executor.ObserverFunc(func(ev *wire.Event) {
		if ev.Type == wire.ToolError {
			fmt.Printf("attempt %d: %s: %s, because %s\n", ev.Attempt, ev.Error.Kind, ev.Decision, ev.Because)
		}
	})})
	check(err)

	r := ex.Call(ctx, tool.Call{Tool: "area", Args: []byte(`{"width": 6, "height": 7}`)})
	fmt.Println(r.Status, string(r.Value), "after", len(r.Attempts), "attempts")

	r = ex.Call(ctx, tool.Call{Tool: "area", Args: []byte(`{"width": "six"}`)})
	fmt.Println(r.Status, r.Fault.Kind, r.Fault.Kind == fault.InvalidArguments)
	for _, v := range r.Fault.Violations {
		fmt.Printf("  %s: expected %s, got %s\n", v.Pointer, v.Expected, v.Got)
	}

	end, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	check(ex.Shutdown(end))
	stop()
	check(<-worked)
	check(<-known)
	// Output:
	// attempt 1: upstream: retry, because it is read: it may run twice
	// success 42 after 2 attempts
	// attempt 1: invalid_arguments: escalate, because invalid_arguments is permanent; nothing else is left to try
	// failed invalid_arguments true
	//   /height: expected integer, got missing
	//   /width: expected integer, got string ("six")
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
