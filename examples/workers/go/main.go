// Command go is a worker in Go that knows nothing of Toolbus, only NATS: docs/protocol.md at level plain. What package
// worker adds is in examples/worker.
package main

import (
	"encoding/json"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats.go"
)

var tools = map[string]func(args []byte) []byte{
	"conf_echo": func(args []byte) []byte { return args },
	"conf_size": func(args []byte) []byte {
		var in struct {
			Data string `json:"data"`
		}
		_ = json.Unmarshal(args, &in) // level plain has no way to say what is wrong
		out, _ := json.Marshal(map[string]int{"bytes": len(in.Data)})
		return out
	},
}

func main() {
	nc, err := nats.Connect(setting("TOOLBUS_NATS_URL", nats.DefaultURL), nats.MaxReconnects(-1))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	for name, tool := range tools {
		subject := setting("TOOLBUS_PREFIX", "tb") + ".v1.call." + name
		if _, err := nc.QueueSubscribe(subject, "workers", func(m *nats.Msg) { _ = m.Respond(tool(m.Data)) }); err != nil {
			log.Fatal(err)
		}
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	<-stop
}

func setting(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}
