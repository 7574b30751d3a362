// Command plain is a caller and a worker that know nothing of Toolbus, only NATS.
package main

import (
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/nats-io/nats.go"
)

func main() {
	url := os.Getenv("TOOLBUS_NATS_URL")
	if url == "" {
		url = nats.DefaultURL
	}
	nc, err := nats.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()

	// A call: the payload is the arguments, and the payload of the answer is the result. This one goes straight to a
	// worker, without an executor: nobody retries it.
	for _, args := range []string{`{"expression": "6 * 7"}`, `{"expresion": "6 * 7"}`} {
		answer, err := nc.Request("tb.v1.call.calculator", []byte(args), time.Second)
		if err != nil {
			log.Fatal(err)
		}
		if problem := answer.Header.Get("Nats-Service-Error"); problem != "" {
			fmt.Println(answer.Header.Get("Nats-Service-Error-Code"), problem)
			continue
		}
		fmt.Println(string(answer.Data))
	}

	// A worker: whoever answers tb.v1.call.<tool>, in the queue group "workers".
	_, err = nc.QueueSubscribe("tb.v1.call.clock", "workers", func(m *nats.Msg) {
		_ = m.Respond([]byte(time.Now().Format(`{"time": "15:04"}`)))
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("serving clock; Ctrl-C ends it")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt)
	<-stop
}
