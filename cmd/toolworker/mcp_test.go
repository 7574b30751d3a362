package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/internal/cli"
)

// Package mcptool tests what it does; this is what the command line adds.
func TestMCP(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
		said string
	}{
		{[]string{"mcp"}, cli.ExitUsage, "no server is given"},
		{[]string{"mcp", "--url", "http://a", "--header", "s3cret"}, cli.ExitUsage, "expected 'Name: value'"},
		{[]string{"mcp", "--url", "http://a", "--header", "A: 1", "--header", "A: 2"}, cli.ExitUsage, "there twice"},
		{[]string{"mcp", "--url", "http://a", "--", "true"}, cli.ExitFailed, "choose one"},
		{[]string{"mcp", "--", "no-such-program-here"}, cli.ExitFailed, "install it"},
		{[]string{"mcp", "--", "sh", "-c", "echo no database >&2; exit 3"}, cli.ExitFailed, "exit status 3"},
	} {
		var out, errs bytes.Buffer
		if code := run(context.Background(), test.args, &out, &errs); code != test.code || !strings.Contains(errs.String(), test.said) || strings.Contains(errs.String(), "s3cret") {
			t.Errorf("%v = %d\n%s, want %d and %q", test.args, code, errs.String(), test.code, test.said)
		}
	}
}
