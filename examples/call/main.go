// Command call runs one tool call through an executor, from a program of one's own.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func main() {
	ctx := context.Background()
	conn, err := bus.Connect(ctx, bus.Config{URL: os.Getenv("TOOLBUS_NATS_URL")})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	outcome, err := client.New(conn).Run(ctx, wire.TurnRequest{
		Calls: []tool.Call{{Tool: "calculator", Args: []byte(`{"expression": "6 * 7"}`)}},
	})
	if err != nil {
		log.Fatal(err) // no executor, or it went silent
	}
	switch r := outcome.Results[0]; {
	case r.Fault != nil:
		fmt.Println(r.Fault.Kind, r.Sentence, r.Fault.Suggestions)
	default:
		fmt.Println(string(r.Value))
	}
}
