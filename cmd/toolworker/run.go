package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/toolbus/toolbus/internal/cli"
)

// run is the program but for the process: it ends when ctx does, and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return cli.ExitOK
	}
	fmt.Fprintf(stderr, "toolworker: %v\n", err)
	var f *failure
	if errors.As(err, &f) {
		return f.code
	}
	fmt.Fprintf(stderr, "see %s --help\n", cmd.CommandPath())
	return cli.ExitUsage
}

// A failure is an error that is no mistake on the command line.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "toolworker",
		Short:         "Run tools for AI agents on a Toolbus",
		Long:          "Toolworker takes tool calls from NATS and runs them.\n\nAny program is a tool with `toolworker exec`, any HTTP endpoint with `toolworker http`, any MCP server with `toolworker mcp`;\n`toolworker run` serves many of them from one file, and `toolworker demo` runs tools to play with.\nSettings come from flags, else from the environment (TOOLBUS_NATS_URL for --nats-url, and so on), else they are the defaults.",
		Example:       "  toolworker demo\n  toolworker check wordcount.yaml\n  toolworker exec --manifest wordcount.yaml -- python3 wordcount.py",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(execCommand(), httpCommand(), mcpCommand(), runCommand(), demoCommand(), checkCommand(), conformanceCommand(), versionCommand())
	return root
}

func versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say what this program was built from",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), cli.BuildOf(version))
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "toolworker", cli.Version(version))
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
