package otel_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// receiver is a server that takes all that is sent to it, until the test ends, and hands on where it was sent and what it was.
func receiver(t *testing.T) (*httptest.Server, <-chan string) {
	got := make(chan string, 10)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- r.URL.Path + string(b)
	}))
	t.Cleanup(s.Close)
	return s, got
}
