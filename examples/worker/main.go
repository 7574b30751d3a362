// Command worker is a whole worker: one tool, with its schema taken from its Go types.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/worker"
)

type in struct {
	Text string `json:"text" jsonschema:"what to translate"`
}

type out struct {
	Text string `json:"text"`
}

// pig translates a text into Pig Latin, one word at a time.
func pig(ctx context.Context, in in) (out, error) {
	words := strings.Fields(in.Text)
	if len(words) == 0 {
		return out{}, fault.New(fault.InvalidArguments, "the text has no words")
	}
	for i, w := range words {
		worker.Progress(ctx, float64(i), float64(len(words)), w)
		select {
		case <-time.After(50 * time.Millisecond): // it takes its time
		case <-ctx.Done(): // a cancel, or the deadline
			return out{}, ctx.Err()
		}
		letters := []rune(w)
		words[i] = string(letters[1:]) + string(letters[0]) + "ay"
	}
	return out{strings.Join(words, " ")}, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	conn, err := bus.Connect(ctx, bus.Config{URL: os.Getenv("TOOLBUS_NATS_URL")})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	w, err := worker.New(worker.Config{Bus: conn, Tools: []worker.Tool{
		worker.Func(tool.Manifest{ID: "pig_latin", Description: "Translates a text into Pig Latin", Effect: tool.Read}, pig),
	}})
	if err != nil {
		log.Fatal(err)
	}
	if err := w.Run(ctx); err != nil { // Ctrl-C: takes no more calls, lets those under way end
		log.Fatal(err)
	}
}
