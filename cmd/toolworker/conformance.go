package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolbus/toolbus/conformance"
	"github.com/toolbus/toolbus/internal/cli"
)

const conformanceLong = `Conformance starts a worker in any language against a server of its own, plays the transcripts of a level to it, and
prints a table. COMMAND is a worker with the tools of conformance/README.md; it finds the server in TOOLBUS_NATS_URL, and
must pass SIGTERM on where it is a wrapper. What it wrote to stderr is shown where a case failed.

With --random a seeded list of actions is played instead: calls that go well, fail, stall, stream, are cancelled or come
again, and a worker that is killed; each must end once, in time, and nothing may follow.

The exit code is 1 where a case failed.`

func conformanceCommand() *cobra.Command {
	var (
		cfg          conformance.Config
		level, junit string
		asJSON       bool
		verbose      bool
		random       time.Duration
		seed         uint64
	)
	cmd := &cobra.Command{
		Use:   "conformance [flags] -- COMMAND [ARG...]",
		Short: "Say whether a worker in any language speaks the protocol",
		Long:  conformanceLong,
		Example: `  toolworker conformance -- go run ./conformance/goworker
  toolworker conformance --level standard --only cancel -v -- python3 worker.py
  toolworker conformance --random 5m --seed 7 -- node worker.js`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no worker is given; end with -- and its command, such as -- python3 worker.py")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if cfg.Level, err = conformance.ParseLevel(level); err != nil {
				return fmt.Errorf("--level: %w", err)
			}
			cfg.Command = args
			if verbose {
				cfg.Verbose = cmd.ErrOrStderr()
			}
			if random < 0 {
				return fmt.Errorf("--random must not be negative, and is %v", random)
			}
			if random > 0 {
				if !cmd.Flags().Changed("seed") {
					seed = rand.Uint64N(1 << 32)
				}
				return playRandom(cmd.Context(), cmd.OutOrStdout(), cfg, seed, random, asJSON)
			}
			return playCases(cmd.Context(), cmd.OutOrStdout(), cfg, junit, asJSON)
		},
	}
	set := cmd.Flags()
	set.SortFlags = false
	set.SetInterspersed(false) // flags of the command are its own, also without --
	set.StringVar(&level, "level", string(conformance.Full), "what the worker claims: plain, standard or full")
	set.StringVar(&cfg.Only, "only", "", "play only cases with this in their names")
	set.StringVar(&cfg.URL, "nats-url", "", "a NATS server that nobody else uses (default one of our own)")
	set.BoolVar(&asJSON, "json", false, "print JSON")
	set.StringVar(&junit, "junit", "", "file to write the report to as JUnit XML as well")
	set.BoolVarP(&verbose, "verbose", "v", false, "tell every step on stderr")
	set.DurationVar(&random, "random", 0, "play random actions for so long instead")
	set.Uint64Var(&seed, "seed", 0, "of --random: the same one makes the same actions (default a random one)")
	return cmd
}

func playCases(ctx context.Context, out io.Writer, cfg conformance.Config, junit string, asJSON bool) error {
	report, err := conformance.Run(ctx, cfg)
	if err != nil {
		return &failure{cli.ExitFailed, err}
	}
	if junit != "" {
		if err := writeJUnit(junit, report); err != nil {
			return &failure{cli.ExitFailed, err}
		}
	}
	if asJSON {
		err = cli.PrintJSON(out, report)
	} else {
		err = report.Table(out)
	}
	if err == nil && !report.Passed() {
		err = fmt.Errorf("%d of %d cases failed", report.Count("", conformance.Failed), len(report.Cases))
	}
	if err != nil {
		return &failure{cli.ExitFailed, err}
	}
	return nil
}

func writeJUnit(path string, report conformance.Report) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(report.JUnit(f), f.Close())
}

func playRandom(ctx context.Context, out io.Writer, cfg conformance.Config, seed uint64, d time.Duration, asJSON bool) error {
	report, err := conformance.Random(ctx, cfg, seed, d)
	if err != nil {
		return &failure{cli.ExitFailed, fmt.Errorf("seed %d: %w", seed, err)}
	}
	if asJSON {
		err = cli.PrintJSON(out, report)
	} else {
		err = report.Table(out)
	}
	if err == nil && !report.Passed() {
		err = fmt.Errorf("the worker broke what always holds; play the same again with --seed %d", seed)
	}
	if err != nil {
		return &failure{cli.ExitFailed, err}
	}
	return nil
}
