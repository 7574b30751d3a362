package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/internal/command"
	"github.com/toolbus/toolbus/worker"
)

const execLong = `Exec makes a tool of a command. It runs once per call, unless --mode is lines:

  stdin   the arguments, JSON
  stdout  the result: JSON, or text
  stderr  "::progress 3/10 reading" is progress; the last line says what went wrong
  exit    0, or why not: 1 failed; 2, 64, 65 invalid arguments; 66 not found; 69 unavailable; 70 internal;
          73, 74, 75 try again; 77 denied; 78, 126, 127 unsupported; 124 timeout

A last line of stderr such as {"kind":"rate_limited","message":"slow down","retry_after_ms":1500} says it exactly.
There is no shell, and nothing of a call gets into the command line. The command sees PATH, HOME, LANG and TZ, what
--env names, and TOOLBUS_TOOL, _CALL, _ATTEMPT, _TIMEOUT_MS and _KEY and TRACEPARENT.

With --mode lines the command is started once, and again where it ends. It reads a line for each call and answers one:

  stdin   {"id":"7","args":{"text":"hi"}}   or {"id":"7","cancel":true}
  stdout  {"id":"7","result":42}   or {"id":"7","error":{"kind":"not_found","message":"…"}}   or, before,
          {"id":"7","progress":{"done":1,"total":3,"message":"reading"}}
  stderr  the log`

func execCommand() *cobra.Command {
	var (
		o        options
		c        command.Command
		manifest string
		mode     string
		l        command.Lines
	)
	cmd := &cobra.Command{
		Use:   "exec --manifest FILE [flags] -- COMMAND [ARG...]",
		Short: "Run a command as a tool",
		Long:  execLong,
		Example: `  toolworker exec --manifest wordcount.yaml -- python3 wordcount.py
  toolworker exec --manifest examples/tools/disk.yaml --dir examples/tools --concurrency 2 -- sh disk.sh`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no command is given; end with -- and the command, such as -- python3 wordcount.py")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.MaxOutput < 1 {
				return fmt.Errorf("--max-output must be at least 1 byte, not %d", c.MaxOutput)
			}
			if mode != "call" && mode != "lines" {
				return fmt.Errorf("--mode must be call or lines, not %q", mode)
			}
			if mode == "call" && (cmd.Flags().Changed("pool") || cmd.Flags().Changed("parallel")) {
				return errors.New("--pool and --parallel go with --mode lines")
			}
			c.Path, c.Args = args[0], args[1:]
			if err := c.Check(); err != nil {
				return err
			}
			m, err := readManifest(manifest)
			if err != nil {
				return &failure{cli.ExitFailed, err}
			}
			tools := []worker.Tool{{Manifest: *m, Handler: c}}
			if mode == "lines" {
				l.Command = c
				if l.Logger, err = o.logger(cmd.ErrOrStderr()); err != nil {
					return err
				}
				pool, err := l.Start()
				if err != nil {
					return err
				}
				defer pool.Close()
				tools[0].Handler = pool
			}
			return o.serve(cmd.Context(), tools, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	set := cmd.Flags()
	set.SetInterspersed(false) // flags of the command are its own, also without --
	set.StringVarP(&manifest, "manifest", "m", "", "manifest of the tool, YAML or JSON (required)")
	_ = cmd.MarkFlagRequired("manifest")
	set.StringVar(&c.Dir, "dir", "", "folder to run the command in (default this one)")
	set.StringArrayVar(&c.Env, "env", nil, "variable that the command may see: NAME, or NAME=VALUE (repeat for more)")
	set.Int64Var(&c.MaxOutput, "max-output", 8<<20, "largest result in bytes")
	set.StringVar(&mode, "mode", "call", "call starts the command for every call; lines starts it once, for a line of JSON in and one out")
	set.IntVar(&l.Pool, "pool", 1, "of mode lines: how many of the command run")
	set.IntVar(&l.Parallel, "parallel", 1, "of mode lines: how many calls each of them gets at once")
	set.BoolVar(&c.Strict, "strict", false, "refuse results that are not JSON")
	o.bind(set)
	return cmd
}
