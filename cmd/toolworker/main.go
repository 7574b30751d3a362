// Toolworker runs tools on a Toolbus: any command as a tool, by its manifest, or the demo tools.
//
//	toolworker exec --manifest wordcount.yaml -- python3 wordcount.py
//	toolworker demo
//	toolworker check wordcount.yaml
//	toolworker version
//
// The first Ctrl-C or SIGTERM drains: no more calls are taken, and those that run may end. The second one stops at once.
package main

import (
	"context"
	"os"

	"github.com/toolbus/toolbus/internal/cli"
)

// version is set by the release build: -ldflags "-X main.version=1.2.3".
var version string

func main() {
	os.Exit(run(cli.Signals(context.Background()), os.Args[1:], os.Stdout, os.Stderr))
}
