// Toolworker runs tools on a Toolbus: commands, HTTP endpoints and MCP servers as tools, or the demo tools.
//
//	toolworker exec --manifest wordcount.yaml -- python3 wordcount.py
//	toolworker http --manifest weather.yaml
//	toolworker mcp -- npx -y @modelcontextprotocol/server-memory
//	toolworker run tools.yaml
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
