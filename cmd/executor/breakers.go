package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nuid"
	"github.com/spf13/cobra"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/tool"
)

// A breakerInfo is one line of the list of breakers.
type breakerInfo struct {
	Tool      string `json:"tool"`
	State     string `json:"state"`
	Failures  int    `json:"failures,omitempty"`
	Successes int    `json:"successes,omitempty"`
	Probes    int    `json:"probes,omitempty"`   // on their way
	HoldMs    int64  `json:"hold_ms,omitempty"`  // how long the state lasts, from when it was entered
	Trips     int    `json:"trips,omitempty"`    // opened so often without closing between
	WaitMs    int64  `json:"wait_ms,omitempty"`  // the tool asked all to wait so long
	Revision  uint64 `json:"revision,omitempty"` // of its record
	Why       string `json:"why,omitempty"`
	Who       string `json:"who,omitempty"`
	Broken    string `json:"broken,omitempty"` // what is wrong with the record, which is repaired at its next write
}

func (p *program) breakers() *cobra.Command {
	var watch, asJSON bool
	c := &cobra.Command{
		Use:   "breakers",
		Short: "List the circuit breakers that all executors share",
		Long:  "List the circuit breakers that all executors share. A tool that never failed has none, and is closed.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withBreakers(cmd.Context(), func(ctx context.Context, b *kvstate.Bucket) error {
				if watch {
					return p.watchBreakers(ctx, b, asJSON)
				}
				return p.listBreakers(ctx, b, asJSON)
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON; with --watch one line for each change")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "go on, and print each change as it comes")
	for _, f := range []struct {
		use, short string
		state      breaker.State
	}{
		{"open", "Let no call of a tool through", breaker.ForcedOpen},
		{"close", "Let every call of a tool through, whatever happens", breaker.ForcedClosed},
		{"disable", "Let every call through and count nothing", breaker.Disabled},
		{"auto", "Give the breaker back to itself, closed", breaker.Closed},
	} {
		c.AddCommand(p.force(f.use, f.short, f.state))
	}
	return c
}

// withBreakers connects and opens the bucket of breakers.
func (p *program) withBreakers(ctx context.Context, do func(context.Context, *kvstate.Bucket) error) error {
	c, err := p.connect(ctx, "breakers")
	if err != nil {
		return err
	}
	defer c.Close()
	b, err := kvstate.Open(ctx, c, p.breakerBucket())
	if err != nil {
		return errCode{cli.ExitUnavailable, err}
	}
	return do(ctx, b)
}

// breakerBucket is where all executors keep their breakers.
func (p *program) breakerBucket() kvstate.Config {
	return kvstate.Config{Bucket: p.bucket("BREAKERS"), Replicas: p.cfg.Replicas, MaxValue: 16 << 10, Wrote: p.look.flushed()}
}

// bucket is the name of one of our buckets under this prefix.
func (p *program) bucket(name string) string {
	return strings.ToUpper(cmp.Or(p.cfg.Prefix, "tb")) + "_" + name
}

func infoOf(e kvstate.Entry) breakerInfo {
	info := breakerInfo{Tool: e.Key, Revision: e.Revision}
	v, err := executor.BreakerOf(e)
	if err != nil {
		info.Broken = err.Error()
	}
	info.State, info.Failures, info.Successes, info.Probes = v.State, v.Failures, v.Successes, len(v.Probes)
	info.HoldMs, info.Trips, info.WaitMs, info.Why, info.Who = v.HoldMs, v.Trips, v.WaitMs, v.Why, v.Who
	return info
}

func (p *program) listBreakers(ctx context.Context, b *kvstate.Bucket, asJSON bool) error {
	entries, err := b.All(ctx)
	if err != nil {
		return errCode{cli.ExitUnavailable, err}
	}
	list := make([]breakerInfo, 0, len(entries))
	for _, e := range entries {
		list = append(list, infoOf(e))
	}
	slices.SortFunc(list, func(a, b breakerInfo) int { return cmp.Compare(a.Tool, b.Tool) })
	if asJSON {
		return cli.PrintJSON(p.out, list)
	}
	if len(list) == 0 {
		fmt.Fprintln(p.err, "no breakers yet: no tool has failed, and all are closed")
		return nil
	}
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOOL\tSTATE\tLASTS\tFAILURES\tPROBES\tWHO\tWHY")
	for _, i := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", i.Tool, i.State, lasts(i), i.Failures, i.Probes, dash(i.Who), dash(plainText(cmp.Or(i.Broken, i.Why))))
	}
	return w.Flush()
}

// lasts is how long the state lasts in all.
func lasts(i breakerInfo) string {
	if i.HoldMs == 0 {
		return "-"
	}
	return (time.Duration(i.HoldMs) * time.Millisecond).String()
}

// watchBreakers prints what stands there, and then every change.
func (p *program) watchBreakers(ctx context.Context, b *kvstate.Bucket, asJSON bool) error {
	began := time.Now()
	known := map[string]breakerInfo{}
	return b.Follow(ctx, func(u kvstate.Update) {
		if u.Synced {
			return
		}
		info := infoOf(u.Entry)
		if u.Deleted {
			info.State, info.Why = breaker.Closed.String(), "its record was deleted"
		}
		before, seen := known[u.Key]
		known[u.Key] = info
		if asJSON {
			_ = cli.PrintJSONLine(p.out, info) // a reader that is gone ends us by its signal
			return
		}
		change := info.State
		if seen && before.State != info.State {
			change = before.State + " → " + info.State
		}
		fmt.Fprintf(p.out, "%8.3f s  %-24s %-24s failures %d  successes %d  probes %d  %s\n", time.Since(began).Seconds(), info.Tool, change,
			info.Failures, info.Successes, info.Probes, plainText(info.Why))
	})
}

func (p *program) force(use, short string, state breaker.State) *cobra.Command {
	var reason string
	var lasts time.Duration
	c := &cobra.Command{
		Use: use + " TOOL", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, _, _ := strings.Cut(args[0], ".")
			if err := tool.CheckName(name); err != nil {
				return err
			}
			if state != breaker.Closed && strings.TrimSpace(reason) == "" {
				return errors.New("--reason is missing: say why, for whoever finds the tool in this state")
			}
			return p.withBreakers(cmd.Context(), func(ctx context.Context, b *kvstate.Bucket) error {
				if err := executor.ForceBreaker(ctx, b, args[0], state, whoami(), reason, lasts, nuid.Next()); err != nil {
					return errCode{cli.ExitUnavailable, err}
				}
				until := ""
				if lasts > 0 {
					until = " for " + lasts.String()
				}
				fmt.Fprintf(p.out, "the breaker of %s is %s%s\n", args[0], state, until)
				return nil
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why, shown to everybody")
	if state != breaker.Closed {
		c.Flags().DurationVar(&lasts, "for", 0, "how long, after which it is closed again (default until breakers auto)")
	}
	return c
}

// whoami is who forces a breaker, as far as this machine knows.
func whoami() string {
	name := cmp.Or(os.Getenv("USER"), "somebody")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
