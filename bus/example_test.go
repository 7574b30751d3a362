package bus_test

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
)

func ExampleConn_Request() {
	server, err := bus.StartServer(bus.ServerConfig{DontListen: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Shutdown()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := bus.Connect(ctx, bus.Config{Server: server})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	if _, f := c.Request(ctx, c.Subjects().Call("greet"), "greet", nil, []byte("you")); f != nil {
		fmt.Println(f)
	}
	_, err = c.Subscribe(c.Subjects().Call("greet"), "workers", func(m *nats.Msg) {
		_ = c.Respond(m.Reply, nil, append([]byte("hello "), m.Data...))
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	frame, f := c.Request(ctx, c.Subjects().Call("greet"), "greet", nil, []byte("you"))
	fmt.Println(string(frame.Data), f == nil)
	// Output:
	// unavailable: nobody listens on tb.v1.call.greet
	// hello you true
}
