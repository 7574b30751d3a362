package cli

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Logger is a log on w. The level is debug, info, warn or error, empty for info; the format is text or json, empty for
// text.
func Logger(w io.Writer, level, format string) (*slog.Logger, error) {
	var opts slog.HandlerOptions
	switch strings.ToLower(level) {
	case "debug":
		opts.Level = slog.LevelDebug
	case "", "info":
		opts.Level = slog.LevelInfo
	case "warn":
		opts.Level = slog.LevelWarn
	case "error":
		opts.Level = slog.LevelError
	default:
		return nil, fmt.Errorf("log level %q: expected debug, info, warn or error", level)
	}
	switch strings.ToLower(format) {
	case "", "text":
		return slog.New(slog.NewTextHandler(w, &opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &opts)), nil
	}
	return nil, fmt.Errorf("log format %q: expected text or json", format)
}
