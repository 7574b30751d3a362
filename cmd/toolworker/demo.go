package main

import (
	"github.com/spf13/cobra"

	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/internal/demo"
)

func demoCommand() *cobra.Command {
	var (
		o   options
		cfg demo.Config
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run tools to play with",
		Long: `Demo runs echo, calculator, table_query, file_search, http_fetch, slow, flaky and crash in this process.

crash kills this process: that is what it is for.`,
		Example: `  toolworker demo
  toolworker demo --only calculator,file_search --dir /usr/share/doc`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, stop, err := demo.ServePage(cmd.Context())
			if err != nil {
				return &failure{cli.ExitFailed, err}
			}
			defer stop()
			cfg.PageURL = page
			tools, err := demo.Tools(cfg)
			if err != nil {
				return err
			}
			return o.serve(cmd.Context(), tools, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&cfg.Dir, "dir", "", "folder that file_search looks below (default this one)")
	cmd.Flags().StringSliceVar(&cfg.AllowHosts, "allow-host", nil, "host, or host:port, that http_fetch may fetch from (repeat for more)")
	cmd.Flags().StringSliceVar(&cfg.Only, "only", nil, "run only these tools")
	o.bind(cmd.Flags())
	return cmd
}
