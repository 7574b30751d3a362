package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// A call over the bus, with its events. In the place of executor serve and a worker elsewhere stand ones in this process.
func Example() {
	server, conn, stop := connect()
	defer stop()
	c := client.New(conn)
	request := wire.TurnRequest{Calls: []tool.Call{{Tool: "greet", Args: []byte(`{"name": "Ada"}`)}}}

	_, err := c.Run(context.Background(), request)
	fmt.Println(err, errors.Is(err, &fault.Fault{Kind: fault.Unavailable}))

	defer serve(server)()
	outcome, err := c.Stream(context.Background(), request, func(ev *wire.Event) { fmt.Println(ev.Seq, ev.Type) })
	check(err)
	fmt.Println(outcome.Status, string(outcome.Results[0].Value))
	// Output:
	// unavailable: no executor is running: start one with `executor serve` or `executor dev` true
	// 1 TurnStarted
	// 2 CallReady
	// 3 AttemptStarted
	// 4 CallSettled
	// 5 TurnEnded
	// completed {"hello":"Ada"}
}

// An open turn, as an agent has one that calls tools in rounds. The second round takes a part of what came in the first.
func ExampleClient_Open() {
	server, conn, stop := connect()
	defer stop()
	defer serve(server)()
	ctx := context.Background()

	turn, err := client.New(conn).Open(ctx, wire.TurnRequest{DeadlineMs: 30_000}, nil)
	check(err)
	results, err := turn.Call(ctx,
		tool.Call{Tool: "greet", Args: []byte(`{"name": "Ada"}`)},
		tool.Call{Tool: "greet", Args: []byte(`{"name": "Grace"}`)})
	check(err)
	for _, r := range results {
		fmt.Println(r.Call, r.Status, string(r.Value))
	}
	err = turn.Add(ctx, tool.Call{ID: "last", Tool: "greet", Args: []byte(`{"name": {"$from": "c2", "pointer": "/hello"}}`)})
	check(err)
	outcome, err := turn.Close(ctx)
	check(err)
	fmt.Println(outcome.Status, string(outcome.Results[2].Value))
	// Output:
	// c1 success {"hello":"Ada"}
	// c2 success {"hello":"Grace"}
	// completed {"hello":"Grace"}
}

// connect starts a server and connects to it, until the func that it returns is called.
func connect() (*bus.Server, *bus.Conn, func()) {
	dir, err := os.MkdirTemp("", "toolbus")
	check(err)
	server, err := bus.StartServer(bus.ServerConfig{Dir: dir, DontListen: true, Lazy: true})
	check(err)
	conn, err := bus.Connect(context.Background(), bus.Config{Server: server})
	check(err)
	return server, conn, func() {
		conn.Close()
		server.Shutdown()
		check(os.RemoveAll(dir))
	}
}

// serve runs a worker and an executor until the func that it returns is called.
func serve(server *bus.Server) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	conn, err := bus.Connect(ctx, bus.Config{Server: server})
	check(err)
	type in struct {
		Name string `json:"name"`
	}
	w, err := worker.New(worker.Config{Bus: conn, Tools: []worker.Tool{
		worker.Func(tool.Manifest{ID: "greet", Effect: tool.Read}, func(_ context.Context, in in) (map[string]string, error) {
			return map[string]string{"hello": in.Name}, nil
		}),
	}})
	check(err)
	own, err := bus.Connect(ctx, bus.Config{Server: server})
	check(err)
	reg := registry.New(registry.Config{Bus: own})
	ex, err := executor.New(executor.Config{Bus: own, Registry: reg})
	check(err)

	ended := make(chan error, 3)
	go func() { ended <- w.Run(ctx) }()
	<-w.Ready()
	go func() { ended <- reg.Run(ctx) }()
	<-reg.Ready()
	go func() { ended <- ex.Run(ctx, 0) }()
	<-ex.Ready()
	return func() {
		cancel()
		for range 3 {
			check(<-ended)
		}
		conn.Close()
		own.Close()
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
