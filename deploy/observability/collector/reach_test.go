package collector_test

import (
	"fmt"
	"io"
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

// freePorts are n ports of this machine that were free a moment ago.
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // at the end, so that no two are the same
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// freePort is one of freePorts, as host:port.
func freePort(t *testing.T) string {
	t.Helper()
	return fmt.Sprint("127.0.0.1:", freePorts(t, 1)[0])
}
