package main

import (
	"regexp"
	"testing"
)

// Everything that dev promises to be there is there, from another connection.
func TestDev(t *testing.T) {
	p := background(t, "Ctrl-C stops.", "dev", "--port=-1", "--store-dir="+t.TempDir())
	url := regexp.MustCompile(`nats://[0-9.:]+`).FindString(p.String())
	if url == "" {
		t.Fatalf("dev wrote\n%s\nwant the address of its server", p)
	}
	at := "--nats-url=" + url
	page := regexp.MustCompile(`http://[0-9.:]+/`).FindString(p.String())
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"call", at, "calculator", `{"expression": "6 * 7"}`}, 0, "✓ calculator answered"},
		{[]string{"call", at, "file_search", `{"query": "func TestDev"}`}, 0, "✓ file_search answered"},
		{[]string{"call", at, "http_fetch", `{"url": "` + page + `"}`}, 0, "✓ http_fetch answered"},
		{[]string{"call", at, "table_query", `{"limit": 1}`}, 0, "✓ table_query answered"},
		{[]string{"call", at, "crash"}, 1, "worker_lost (transient): worker "}, // its process is started anew, sooner or later than the second attempt
		{[]string{"call", at, "echo"}, 0, "✓ echo answered"},
	} {
		command("", tc.args...).check(t, tc.args[2], tc.code, nil, []string{tc.want})
	}
	command("", "dev", "--port=-1", "--store-dir=/dev/null/x").check(t, "a store that cannot be", 3, nil, []string{"store directory: mkdir /dev/null"})
}
