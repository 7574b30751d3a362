package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/tool"
)

func (p *program) tools() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "tools", Short: "List the tools that are known, and who runs them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.catalogue(cmd.Context(), func(r *registry.Registry) error {
				if asJSON {
					return cli.PrintJSON(p.out, r.Tools())
				}
				return p.printTools(r.Tools())
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

func (p *program) printTools(tools []registry.ToolInfo) error {
	if len(tools) == 0 {
		fmt.Fprintln(p.err, "no tools are known: start a worker, for example with `toolworker demo`")
		return nil
	}
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOOL\tVERSION\tEFFECT\tWORKERS\tDESCRIPTION")
	for _, t := range tools {
		workers := "none running"
		if n := len(t.Workers); n > 0 {
			workers = fmt.Sprint(n)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", t.Name, dash(t.Version), dash(string(t.Effect)), workers, firstLine(t.Description))
		for _, v := range t.Conflicts {
			fmt.Fprintf(w, "  conflict\t%s\t\t%d\tanother manifest (%.8s) is announced by %s\n", dash(v.Version), len(v.Workers), v.Digest, strings.Join(v.Workers, ", "))
		}
	}
	return w.Flush()
}

func (p *program) workers() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "workers", Short: "List the workers that are alive", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.catalogue(cmd.Context(), func(r *registry.Registry) error {
				if asJSON {
					return cli.PrintJSON(p.out, r.Workers())
				}
				return p.printWorkers(r.Workers())
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

func (p *program) printWorkers(workers []registry.WorkerInfo) error {
	if len(workers) == 0 {
		fmt.Fprintln(p.err, "no workers are running: start one, for example with `toolworker demo`")
		return nil
	}
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WORKER\tRUNNING\tSTATE\tSEEN\tSDK\tTOOLS")
	for _, k := range workers {
		state := "ready"
		switch {
		case k.Draining:
			state = "draining"
		case k.Leaked > 0:
			state = fmt.Sprintf("%d leaked", k.Leaked)
		case k.Capacity > 0 && k.Running >= k.Capacity:
			state = "full"
		}
		fmt.Fprintf(w, "%s\t%d/%d\t%s\t%d ms ago\t%s\t%s\n", k.ID, k.Running, k.Capacity, state, k.SeenMs, dash(k.SDK), strings.Join(k.Tools, " "))
	}
	return w.Flush()
}

// listenFor is how long executors are listened to: each speaks once a second.
const listenFor = 1300 * time.Millisecond

func (p *program) executors() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "executors", Short: "List the executors that are alive, and whether they share their circuit breakers", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := p.listen(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(p.out, list)
			}
			if len(list) == 0 {
				fmt.Fprintln(p.err, "no executors are running: start one with `executor serve` or `executor dev`")
				return nil
			}
			w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "EXECUTOR\tIN FLIGHT\tBREAKERS")
			for _, e := range list {
				fmt.Fprintf(w, "%s\t%d\t%s\n", e.Executor, e.InFlight, plainText(e.Breakers))
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

// listen is who spoke within listenFor, sorted.
func (p *program) listen(ctx context.Context) ([]executor.Presence, error) {
	c, err := p.connect(ctx, "list")
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var mu sync.Mutex
	heard := map[string]executor.Presence{}
	_, err = c.Subscribe(c.Subjects().Event("executor.*"), "", func(m *nats.Msg) {
		var e executor.Presence
		if len(m.Data) > executor.MaxPresence || json.Unmarshal(m.Data, &e) != nil || tool.CheckID(e.Executor) != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		heard[e.Executor] = e
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(listenFor):
	case <-ctx.Done():
	}
	mu.Lock()
	defer mu.Unlock()
	list := make([]executor.Presence, 0, len(heard))
	for _, id := range slices.Sorted(maps.Keys(heard)) {
		list = append(list, heard[id])
	}
	return list, nil
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// firstLine is the first line of s, cut to what fits a table.
func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if r := []rune(s); len(r) > 60 {
		return string(r[:59]) + "…"
	}
	return s
}
