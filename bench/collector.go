package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
)

// collector is the far side that takes OTLP over HTTP, looks into it so far that it can count the spans, and throws it away.
// Below /hangs it takes and never answers; what comes below any other path is not counted.
func collector() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var spans atomic.Int64
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // until this process ends
			if r.Method == http.MethodGet {
				fmt.Fprint(w, spans.Load())
				return
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			switch r.URL.Path {
			case "/v1/traces":
				spans.Add(count(body, 1, 2, 2)) // resource_spans, scope_spans, spans
			case "/hangs/v1/traces":
				<-r.Context().Done()
			}
		}))
	}()
	fmt.Println("http://" + l.Addr().String())
	_, _ = io.Copy(io.Discard, os.Stdin) // until whoever started us has ended
	return nil
}

// count is how many messages a path of fields leads to.
func count(b []byte, path ...protowire.Number) (n int64) {
	if len(path) == 0 {
		return 1
	}
	for len(b) > 0 {
		field, kind, k := protowire.ConsumeTag(b)
		if k < 0 {
			return n
		}
		b = b[k:]
		if k = protowire.ConsumeFieldValue(field, kind, b); k < 0 {
			return n
		}
		if field == path[0] && kind == protowire.BytesType {
			inner, _ := protowire.ConsumeBytes(b)
			n += count(inner, path[1:]...)
		}
		b = b[k:]
	}
	return n
}

// counted asks a collector for its count.
func counted(url string) (int64, error) {
	r, err := http.Get(url)
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(body), 10, 64)
}
