package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/internal/httptool"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/worker"
)

const httpLong = `Http makes a tool of an HTTP endpoint: of the one that the http section of a manifest describes, or of every operation
of an OpenAPI document.

Secrets stand in headers by reference, ${env:NAME} or ${file:/path}, and are never logged. Addresses that are not public
are refused unless the manifest, or --allow-private, allows them. What else holds is in docs/bridges.md.`

func httpCommand() *cobra.Command {
	var (
		o              options
		manifest, spec string
		cfg            httptool.SpecConfig
		headers        []string
	)
	cmd := &cobra.Command{
		Use:   "http (--manifest FILE | --openapi FILE [--server URL])",
		Short: "Run an HTTP endpoint, or an API, as tools",
		Long:  httpLong,
		Example: `  toolworker http --manifest examples/bridges/forecast.yaml
  toolworker http --openapi petstore.yaml --server https://pets.example.com/v1 --include listPets --header 'Authorization: Bearer ${env:PETS}'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if (manifest == "") == (spec == "") {
				return errors.New("give either --manifest or --openapi")
			}
			if manifest != "" {
				for _, flag := range []string{"server", "include", "tool-prefix", "header", "allow-host", "allow-private"} {
					if cmd.Flags().Changed(flag) {
						return fmt.Errorf("--%s goes with --openapi; a manifest says it itself", flag)
					}
				}
				t, err := openHTTP(manifest)
				if err != nil {
					return &failure{cli.ExitFailed, err}
				}
				return o.serve(cmd.Context(), []worker.Tool{t}, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			if cfg.Headers, err = parseHeaders(headers); err != nil {
				return err
			}
			return serveSpec(cmd.Context(), &o, spec, cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	set := cmd.Flags()
	set.StringVarP(&manifest, "manifest", "m", "", "manifest with an http section, YAML or JSON")
	set.StringVar(&spec, "openapi", "", "OpenAPI document, YAML or JSON")
	set.StringVar(&cfg.Server, "server", "", "where the API is (default what the document says)")
	set.StringArrayVar(&cfg.Include, "include", nil, "operationId, or 'GET /path', to take (repeat for more; default all)")
	set.StringVar(&cfg.Prefix, "tool-prefix", "", "begins the names of all tools")
	set.StringArrayVar(&headers, "header", nil, "'Name: value' for every request; ${env:NAME} and ${file:PATH} stand for secrets (repeat for more)")
	set.StringSliceVar(&cfg.AllowHosts, "allow-host", nil, "host, or host:port, that redirects may lead to (repeat for more)")
	set.BoolVar(&cfg.AllowPrivate, "allow-private", false, "allow addresses that are not public")
	o.bind(set)
	return cmd
}

// openHTTP makes a tool of a manifest with an http section.
func openHTTP(file string) (worker.Tool, error) {
	s, err := openSection(file, "manifest")
	if err != nil {
		return worker.Tool{}, err
	}
	members, err := s.members()
	if err != nil {
		return worker.Tool{}, err
	}
	if members["http"] == nil {
		return worker.Tool{}, tool.Problems{s.say("", "the manifest has no http section, which says what to ask")}
	}
	return httpTool(s, s.member("http", members["http"]), s, "http")
}

// httpTool makes a tool of an http section and the manifest beside it; outer is what both are part of.
func httpTool(outer, http, manifest section, without ...string) (worker.Tool, error) {
	var cfg httptool.Config
	m, err := manifest.manifest(without...)
	err2 := http.into(&cfg)
	if err != nil || err2 != nil {
		return worker.Tool{}, errors.Join(err, err2)
	}
	return withHTTP(outer, cfg, m)
}

func withHTTP(outer section, cfg httptool.Config, m *tool.Manifest) (worker.Tool, error) {
	t, err := httptool.New(cfg, *m)
	var problems tool.Problems
	if errors.As(err, &problems) {
		return t, outer.place(problems)
	}
	return t, err
}

// openSpec makes the tools of an OpenAPI document.
func openSpec(file string, cfg httptool.SpecConfig) (*httptool.Spec, error) {
	data, err := readFile(file, httptool.MaxSpecBytes)
	if err != nil {
		return nil, err
	}
	spec, err := httptool.OpenAPI(data, cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return spec, nil
}

func serveSpec(ctx context.Context, o *options, file string, cfg httptool.SpecConfig, stdout, stderr io.Writer) error {
	spec, err := openSpec(file, cfg)
	if err != nil {
		return &failure{cli.ExitFailed, err}
	}
	log, err := o.logger(stderr)
	if err != nil {
		return err
	}
	for _, note := range spec.Notes {
		log.Warn("openapi", "file", file, "note", note)
	}
	return o.serve(ctx, spec.Tools, stdout, stderr)
}
