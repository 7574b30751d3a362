package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/tool"
)

func checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check MANIFEST...",
		Short: "Check manifests, and list every mistake with its line",
		Long: `Check manifests, YAML or JSON, and list every mistake with its line. Warnings are about what is allowed and perhaps not
meant, such as a tool that does not say what a second run would do. Exit code 1 where a manifest cannot be used.`,
		Example: "  toolworker check examples/tools/*.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			wrong := 0
			for _, file := range files {
				if !check(cmd.OutOrStdout(), file) {
					wrong++
				}
			}
			if wrong > 0 {
				return &failure{cli.ExitFailed, fmt.Errorf("%d of %d manifests cannot be used", wrong, len(files))}
			}
			return nil
		},
	}
}

// check says what is wrong with one manifest, what is odd, or that it is fine.
func check(w io.Writer, file string) bool {
	m, err := readManifest(file)
	if err != nil {
		fmt.Fprintln(w, err)
		return false
	}
	compiled, err := tool.Compile(*m)
	if err != nil {
		fmt.Fprintf(w, "%s: %v\n", file, err)
		return false
	}
	for _, warning := range compiled.Warnings() {
		fmt.Fprintf(w, "%s: warning: %s\n", file, warning)
	}
	fmt.Fprintf(w, "%s: fine: tool %s\n", file, m.ID)
	return true
}

// readManifest reads a manifest. The error has a line for each mistake, which begins with file and line.
func readManifest(file string) (*tool.Manifest, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, tool.MaxManifestBytes+1))
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
