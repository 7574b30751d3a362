package worker_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/worker"
)

type forecastIn struct {
	City string `json:"city"`
}

type forecast struct {
	City    string `json:"city"`
	Celsius int    `json:"celsius"`
}

// A whole worker, with an embedded server in the place of one that is there, and a bare NATS request as its caller.
func Example() {
	dir, err := os.MkdirTemp("", "toolbus")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	server, err := bus.StartServer(bus.ServerConfig{Dir: dir, DontListen: true, Lazy: true})
	if err != nil {
		panic(err)
	}
	defer server.Shutdown()
	conn, err := bus.Connect(context.Background(), bus.Config{Server: server})
	if err != nil {
		panic(err)
	}
	defer conn.Close()

	weather := worker.Func(
		tool.Manifest{ID: "weather", Description: "The weather in a city", Effect: tool.Read},
		func(ctx context.Context, in forecastIn) (forecast, error) {
			worker.Progress(ctx, 1, 2, "looking out of the window")
			return forecast{in.City, 18}, nil
		},
	)
	w, err := worker.New(worker.Config{Bus: conn, Tools: []worker.Tool{weather}})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background()) // signal.NotifyContext in a program
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	<-w.Ready()

	for _, args := range []string{`{"city":"Paris"}`, `{"town":"Paris"}`} {
		m, err := conn.NATS().Request("tb.v1.call.weather", []byte(args), time.Second)
		if err != nil {
			panic(err)
		}
		if problem := m.Header.Get("Nats-Service-Error"); problem != "" {
			fmt.Println(problem)
			continue
		}
		fmt.Println(string(m.Data))
	}
	stop()
	fmt.Println("drained:", <-done)
	// Output:
	// {"city":"Paris","celsius":18}
	// arguments of weather are invalid: /city: missing; /town: unknown property
	// drained: <nil>
}
