package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/internal/cli"
)

// Package conformance tests what it does; this is what the command line adds.
func TestConformance(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
		said string
	}{
		{[]string{"conformance"}, cli.ExitUsage, "no worker is given"},
		{[]string{"conformance", "--level", "most", "--", "true"}, cli.ExitUsage, "--level"},
		{[]string{"conformance", "--random", "-1s", "--", "true"}, cli.ExitUsage, "--random"},
		{[]string{"conformance", "--only", "echo/empty", "--", "false"}, cli.ExitFailed, "1 of 1 cases failed"},
		{[]string{"conformance", "--random", "1s", "--seed", "7", "--", "false"}, cli.ExitFailed, "seed 7"},
	} {
		var out, errs bytes.Buffer
		if code := run(context.Background(), test.args, &out, &errs); code != test.code || !strings.Contains(errs.String(), test.said) {
			t.Errorf("%v = %d\n%s%s, want %d and %q", test.args, code, out.String(), errs.String(), test.code, test.said)
		}
	}
}
