package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/internal/mcptool"
)

const mcpLong = `Mcp makes tools of what an MCP server offers: of a program that speaks over stdio, or of a URL (streamable HTTP). The
tools keep their names where NATS and models allow them, get the server's schemas, and their hints become effects:
readOnlyHint is read, idempotentHint is idempotent, everything else is write. When the server's list changes, so do the tools.

A server that ends is started again. A call that ran then has an unknown outcome, and is sent again only where that does
no harm. The program sees PATH, HOME, LANG, TZ, USER, LOGNAME, SHELL, TERM and TMPDIR, and what --env names.`

func mcpCommand() *cobra.Command {
	var (
		o       options
		cfg     mcptool.Config
		headers []string
	)
	cmd := &cobra.Command{
		Use:   "mcp [flags] (-- COMMAND [ARG...] | --url URL)",
		Short: "Run the tools of an MCP server",
		Long:  mcpLong,
		Example: `  toolworker mcp -- npx -y @modelcontextprotocol/server-filesystem /srv/files
  toolworker mcp --tool-prefix gh_ --url https://mcp.example.com/mcp --header 'Authorization: Bearer ${env:TOKEN}'`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if cfg.Command = args; len(args) == 0 && cfg.URL == "" {
				return errors.New("no server is given; end with -- and its command, or give its --url")
			}
			if cfg.Header, err = parseHeaders(headers); err != nil {
				return err
			}
			if cfg.Logger, err = o.logger(cmd.ErrOrStderr()); err != nil {
				return err
			}
			b, err := mcptool.Open(cmd.Context(), cfg)
			if err != nil {
				return &failure{cli.ExitFailed, err}
			}
			defer b.Close()
			o.follow = (&opened{parts: []*part{{bridge: b}}}).follow
			return o.serve(cmd.Context(), b.Tools(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	set := cmd.Flags()
	set.SetInterspersed(false) // flags of the command are its own, also without --
	set.StringVar(&cfg.URL, "url", "", "the server's URL, where it is no command")
	set.StringArrayVar(&headers, "header", nil, "'Name: value' for the URL; ${env:NAME} and ${file:PATH} stand for secrets (repeat for more)")
	set.StringVar(&cfg.Prefix, "tool-prefix", "", "begins the names of all tools")
	set.StringSliceVar(&cfg.Only, "only", nil, "take only these tools, by the server's own names")
	set.StringVar(&cfg.Dir, "dir", "", "folder to run the command in (default this one)")
	set.StringArrayVar(&cfg.Env, "env", nil, "variable that the command may see: NAME, or NAME=VALUE (repeat for more)")
	set.DurationVar(&cfg.Timeout, "timeout", 0, "how long a call may take (default 30s)")
	set.DurationVar(&cfg.StartTimeout, "start-timeout", 0, "how long the server may take to say what it offers (default 30s)")
	set.IntVar(&cfg.Concurrency, "server-concurrency", 0, "how many calls the server gets at once (default 16)")
	o.bind(set)
	return cmd
}

func parseHeaders(lines []string) (map[string]string, error) {
	headers := map[string]string{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if !ok || name == "" {
			return nil, errors.New("--header: expected 'Name: value'") // what was given may be a secret
		}
		if _, twice := headers[name]; twice {
			return nil, fmt.Errorf("--header: %q is there twice", name)
		}
		headers[name] = strings.TrimSpace(value)
	}
	return headers, nil
}
