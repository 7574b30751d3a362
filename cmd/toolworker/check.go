package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/worker"
)

func checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE...",
		Short: "Check manifests and configurations, and list every mistake with its line",
		Long: `Check manifests (with an http section or without) and configurations of "toolworker run", YAML or JSON, and list every
mistake with its line. Nothing is started, and nobody is asked; but commands, files and secrets must be there. Warnings are
about what is allowed and perhaps not meant, such as a tool that does not say what a second run would do. Exit code 1 where
a file cannot be used.`,
		Example: "  toolworker check examples/tools/*.yaml examples/bridges/tools.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			wrong := 0
			for _, file := range files {
				if !check(cmd.OutOrStdout(), file) {
					wrong++
				}
			}
			if wrong > 0 {
				return &failure{cli.ExitFailed, fmt.Errorf("%d of %d files cannot be used", wrong, len(files))}
			}
			return nil
		},
	}
}

// check says what is wrong with one file, what is odd, or that it is fine.
func check(w io.Writer, file string) bool {
	tools, rest, err := checked(file)
	if err != nil {
		fmt.Fprintln(w, err)
		return false
	}
	for _, t := range tools {
		compiled, err := tool.Compile(t.Manifest)
		if err != nil {
			fmt.Fprintf(w, "%s: %v\n", file, err)
			return false
		}
		for _, warning := range compiled.Warnings() {
			fmt.Fprintf(w, "%s: warning: %s\n", file, warning)
		}
	}
	var what []string
	if len(tools) > 0 {
		what = append(what, names(tools))
	}
	if rest != "" {
		what = append(what, rest)
	}
	fmt.Fprintf(w, "%s: fine: %s\n", file, strings.Join(what, " and "))
	return true
}

// checked reads a file as what it is: a configuration, a manifest with an http section, or a manifest. The rest is what
// tools there will be beside those that are known.
func checked(file string) (tools []worker.Tool, rest string, err error) {
	s, err := openSection(file, "manifest")
	members, _ := s.members()
	switch {
	case err == nil && members["tools"] != nil:
		entries, err := readConfig(file)
		servers := 0
		for _, e := range entries {
			tools = append(tools, e.tools...)
			if e.mcp != nil {
				servers++
			}
		}
		if servers > 0 {
			rest = fmt.Sprintf("what its MCP servers offer (%d)", servers)
		}
		return tools, rest, err
	case err == nil && members["http"] != nil:
		t, err := openHTTP(file)
		return []worker.Tool{t}, "", err
	}
	m, err := readManifest(file)
	if err != nil {
		return nil, "", err
	}
	return []worker.Tool{{Manifest: *m}}, "", nil
}

// readManifest reads a manifest. The error has a line for each mistake, which begins with file and line.
func readManifest(file string) (*tool.Manifest, error) {
	data, err := readFile(file, tool.MaxManifestBytes)
	if err != nil {
		return nil, err
	}
	m, err := tool.Parse(file, data)
	var problems tool.Problems
	if err != nil && !errors.As(err, &problems) {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return m, err
}
