package mcptool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

const maxPages = 200 // of tools/list

// list asks for the tools, and makes those that can be used the bridge's. It says so on changed where they are others.
func (b *Bridge) list(ctx context.Context, s *session) error {
	offered, err := ask(ctx, s.mcp)
	if err != nil {
		return fmt.Errorf("tools/list: %w", err)
	}
	version := ""
	if info := s.mcp.InitializeResult().ServerInfo; info != nil {
		version = info.Version
	}
	tools, complaints := b.translate(offered, version)
	var sum bytes.Buffer
	for _, t := range tools {
		sum.WriteString(t.Manifest.Digest())
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if told := strings.Join(complaints, "; "); told != b.told {
		b.told = told
		for _, c := range complaints {
			b.log.Warn(c)
		}
	}
	if len(tools) == 0 {
		return errors.New("the server offers no tool that can be used")
	}
	if digest := sum.String(); digest != b.digest {
		b.tools, b.digest = tools, digest
		wish(b.changed)
	}
	return nil
}

// ask is all pages of tools/list.
func ask(ctx context.Context, s *mcp.ClientSession) ([]*mcp.Tool, error) {
	var all []*mcp.Tool
	params := &mcp.ListToolsParams{}
	for range maxPages {
		page, err := s.ListTools(ctx, params)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Tools...)
		if page.NextCursor == "" || len(all) > wire.MaxTools {
			return all, nil
		}
		params = &mcp.ListToolsParams{Cursor: page.NextCursor}
	}
	return nil, fmt.Errorf("it has more than %d pages", maxPages)
}

// translate makes tools of what a server offers, in its order, and says what could not be taken as it is.
func (b *Bridge) translate(offered []*mcp.Tool, version string) (tools []worker.Tool, complaints []string) {
	complain := func(name, format string, args ...any) {
		complaints = append(complaints, fmt.Sprintf("tool %q: ", clip(name))+clip(fmt.Sprintf(format, args...)))
	}
	taken := map[string]bool{}
	found := map[string]bool{}
	for _, t := range offered {
		if t == nil || len(b.cfg.Only) > 0 && !slices.Contains(b.cfg.Only, t.Name) {
			continue
		}
		found[t.Name] = true
		m := b.manifest(t, version)
		if f := dropSchemas(&m); f != "" {
			complain(t.Name, "%s", f)
		}
		switch _, err := tool.Compile(m); {
		case err != nil:
			complain(t.Name, "left out: %v", err)
		case taken[m.ID]:
			complain(t.Name, "left out: there is another tool %s", m.ID)
		case len(tools) == wire.MaxTools:
			complain(t.Name, "left out, and all that follow: a worker has at most %d tools", wire.MaxTools)
			return tools, complaints
		default:
			taken[m.ID] = true
			tools = append(tools, worker.Tool{Manifest: m, Handler: &handler{b, t.Name}})
		}
	}
	for _, name := range b.cfg.Only {
		if !found[name] {
			complain(name, "the server does not offer it")
		}
	}
	return tools, complaints
}

// manifest is what a server says of a tool, in our words.
func (b *Bridge) manifest(t *mcp.Tool, version string) tool.Manifest {
	m := tool.Manifest{
		ID:          tool.SafeName(b.cfg.Prefix + t.Name),
		Description: cut(t.Description, tool.MaxDescription),
		Input:       schema(t.InputSchema),
		Output:      schema(t.OutputSchema),
		Effect:      effect(t.Annotations),
		TimeoutMs:   b.cfg.Timeout.Milliseconds(),
		Annotations: map[string]string{"mcp.server": cut(b.cfg.Name, tool.MaxAnnotation)},
	}
	if !strings.ContainsFunc(version, func(r rune) bool { return r < ' ' }) {
		m.Version = cut(version, tool.MaxVersion)
	}
	if m.ID != t.Name {
		m.Annotations["mcp.tool"] = cut(t.Name, tool.MaxAnnotation)
	}
	title := t.Title
	if title == "" && t.Annotations != nil {
		title = t.Annotations.Title
	}
	if title != "" {
		m.Annotations["title"] = cut(title, tool.MaxAnnotation)
	}
	return m
}

// effect is what the hints mean. A tool without hints may change things: so MCP says.
func effect(a *mcp.ToolAnnotations) tool.Effect {
	switch {
	case a != nil && a.ReadOnlyHint:
		return tool.Read
	case a != nil && a.IdempotentHint:
		return tool.Idempotent
	}
	return tool.Write
}

func schema(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return data
}

// dropSchemas takes away schemas that cannot be used, and says which and why. What they ask for is then the server's own
// to check.
func dropSchemas(m *tool.Manifest) string {
	var dropped []string
	for _, part := range []struct {
		what string
		is   *json.RawMessage
	}{{"inputSchema", &m.Input}, {"outputSchema", &m.Output}} {
		if *part.is == nil {
			continue
		}
		if _, err := tool.CompileSchema(*part.is); err != nil {
			*part.is = nil
			dropped = append(dropped, fmt.Sprintf("its %s is left out: %v", part.what, err))
		}
	}
	return strings.Join(dropped, "; ")
}

// cut is s as UTF-8, in at most so many characters.
func cut(s string, most int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}
