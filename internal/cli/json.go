package cli

import (
	"encoding/json"
	"io"
)

// PrintJSON writes v to w as indented JSON and a line end, with <, > and & as they are.
func PrintJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
