// Command executor runs the tool calls of agents over NATS: dev for trying it in one process, serve for real, call for
// one call from the shell, and lists of what is there.
package main

import (
	"context"
	"os"

	"github.com/toolbus/toolbus/internal/cli"
)

// version is set by the linker.
var version string

func main() {
	ctx := cli.Signals(context.Background())
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
