package collector_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"testing"
	"time"
)

// await waits for something that other processes do: it asks again and again, for at most half a minute.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	late := time.After(30 * time.Second)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-late:
			t.Fatal("it did not come to this: ", what)
		}
	}
}

// get is what is at a URL, or nothing.
func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}

// freePorts are n ports of this machine that were free a moment ago. They lie below those that systems give to connections
// and to listeners that ask for port 0, so that nobody takes one before whoever is told it.
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range 100 * n {
		port := 12000 + rand.IntN(20000)
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			continue
		}
		defer l.Close() // at the end, so that no two are the same
		if ports = append(ports, port); len(ports) == n {
			return ports
		}
	}
	t.Fatal("there are no free ports")
	return nil
}

// freePort is one of freePorts, as host:port.
func freePort(t *testing.T) string {
	t.Helper()
	return fmt.Sprint("127.0.0.1:", freePorts(t, 1)[0])
}
