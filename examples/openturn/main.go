// Command openturn is the loop of an agent: it calls tools in several rounds, under one deadline.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// rounds are what a model would answer, one after the other: each is thought of when the results of the one before it are
// there.
var rounds = [][]tool.Call{
	{ // three at once
		{ID: "flights", Tool: "flight_search", Args: []byte(`{"from": "ZRH", "to": "LIS", "date": "2026-12-05"}`)},
		{ID: "hotels", Tool: "hotel_search", Args: []byte(`{"city": "Lisbon", "nights": 3}`), Optional: true},
		{ID: "weather", Tool: "weather", Args: []byte(`{"city": "Lisbon", "date": "2026-12-05"}`), Optional: true},
	},
	{ // one that takes a part of a result from before
		{ID: "booking", Tool: "book_trip", Args: []byte(`{"flight": {"$from": "flights", "pointer": "/flights/0/id"}}`)},
	},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	conn, err := bus.Connect(ctx, bus.Config{URL: os.Getenv("TOOLBUS_NATS_URL")})
	if err != nil {
		return err
	}
	defer conn.Close()

	turn, err := client.New(conn).Open(ctx, wire.TurnRequest{DeadlineMs: 30_000}, nil) // Ctrl-C cancels it
	if err != nil {
		return err // no executor, or it refused
	}
	for i, calls := range rounds {
		results, err := turn.Call(ctx, calls...)
		if err != nil {
			turn.Cancel()
			return err
		}
		fmt.Println("round", i+1)
		for _, r := range results { // one for every call, whatever became of it
			fmt.Printf("  %s: %s %s\n", r.Call, r.Status, r.Value)
		}
	}
	outcome, err := turn.Close(ctx)
	if err != nil {
		return err
	}
	fmt.Println(outcome.Status+":", outcome.Sentence)
	return nil
}
