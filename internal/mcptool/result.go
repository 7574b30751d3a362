package mcptool

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolbus/toolbus/fault"
)

// result is the answer to a call: structured content where there is some; else, of a text alone, the JSON that it is or
// the text; else the list of content blocks, as MCP writes them.
func result(r *mcp.CallToolResult) (any, error) {
	if r.NeedsInput() {
		return nil, needsInput(r)
	}
	text, alone := onlyText(r.Content)
	switch {
	case r.IsError:
		return nil, toolFault(r.Content)
	case r.StructuredContent != nil:
		return structured(r.StructuredContent, text), nil
	case len(r.Content) == 0:
		return json.RawMessage("null"), nil
	case alone && json.Valid([]byte(text)):
		return json.RawMessage(strings.TrimSpace(text)), nil
	case alone:
		return text, nil
	}
	data, err := json.Marshal(r.Content)
	if err != nil {
		return nil, fault.New(fault.InvalidResult, "the content cannot be written as JSON: %w", err)
	}
	return json.RawMessage(data), nil
}

// structured is the structured content. Servers send it as text too: where that is the same value it is taken, because the
// SDK reads numbers as float64, and a text has all the digits that were written.
func structured(v any, text string) any {
	var same any
	if json.Unmarshal([]byte(text), &same) == nil && reflect.DeepEqual(v, same) {
		return json.RawMessage(bytes.TrimSpace([]byte(text)))
	}
	return v
}

// onlyText is the text of content that is nothing but one text.
func onlyText(content []mcp.Content) (string, bool) {
	if len(content) != 1 {
		return "", false
	}
	t, ok := content[0].(*mcp.TextContent)
	if !ok {
		return "", false
	}
	return strings.ToValidUTF8(t.Text, "\uFFFD"), true
}

// allText is the texts of content, one below the other.
func allText(content []mcp.Content) string {
	var texts []string
	for _, c := range content {
		if t, ok := c.(*mcp.TextContent); ok && strings.TrimSpace(t.Text) != "" {
			texts = append(texts, t.Text)
		}
	}
	return strings.Join(texts, "\n")
}
