package httptool

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/worker"
)

// Bounds of an OpenAPI document.
const (
	MaxSpecBytes = 8 << 20
	maxOutput    = 16 << 10 // bytes of an output schema; larger ones are left out
)

// A SpecConfig says what becomes of an OpenAPI document. Nothing is required.
type SpecConfig struct {
	// Server is where the API is. Empty means what the document says, which must then be absolute.
	Server string `json:"server"`

	// Include is the operations to take: an operationId, or "GET /pets/{id}". Empty takes all.
	Include []string `json:"include"`

	// Prefix begins the name of every tool.
	Prefix string `json:"prefix"`

	// Headers, AllowHosts, AllowPrivate and MaxBytes are those of Config, for every operation.
	Headers      map[string]string `json:"headers"`
	AllowHosts   []string          `json:"allow_hosts"`
	AllowPrivate bool              `json:"allow_private"`
	MaxBytes     int64             `json:"max_bytes"`

	// TimeoutMs is that of every manifest. Zero leaves it to the default.
	TimeoutMs int64 `json:"timeout_ms"`
}

// A Spec is the tools of an OpenAPI document.
type Spec struct {
	Tools []worker.Tool

	// Notes says what was left out, and why, in sentences.
	Notes []string
}

// OpenAPI makes a tool of every operation of an OpenAPI document, 3.0 or later. The document is read alone: a $ref to
// another file or host is an error. An operation that cannot be a tool is left out with a note, unless it was asked for.
func OpenAPI(data []byte, cfg SpecConfig) (*Spec, error) {
	if len(data) > MaxSpecBytes {
		return nil, fmt.Errorf("the OpenAPI document has %d bytes, at most %d are allowed", len(data), MaxSpecBytes)
	}
	l := openapi3.NewLoader()
	l.ReadFromURIFunc = func(_ *openapi3.Loader, u *url.URL) ([]byte, error) {
		return nil, fmt.Errorf("$ref to %.80s: other documents are not read; bundle them into one", u)
	}
	doc, err := l.LoadFromData(data)
	if err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %.500s", oneParagraph(err.Error()))
	}
	if doc.Info == nil {
		doc.Info = &openapi3.Info{}
	}
	if doc.Paths == nil {
		doc.Paths = openapi3.NewPaths()
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.") {
		return nil, fmt.Errorf("expected an OpenAPI document of version 3, got openapi: %.20q; convert older ones first", doc.OpenAPI)
	}
	s := &spec{doc: doc, cfg: cfg, names: map[string]string{}, transport: newTransport(cfg.AllowPrivate)}
	return s.tools()
}

// A spec is an OpenAPI document on its way to tools.
type spec struct {
	doc       *openapi3.T
	cfg       SpecConfig
	names     map[string]string // tool name to operation
	transport *http.Transport   // shared, and with it the connections
	out       Spec
}

// An operation is one of them, and where it stands.
type operation struct {
	*openapi3.Operation
	method, path string
	item         *openapi3.PathItem
}

func (o operation) String() string { return o.method + " " + o.path }

func (s *spec) tools() (*Spec, error) {
	wanted := map[string]bool{}
	for _, name := range s.cfg.Include {
		wanted[name] = false
	}
	var known []string
	var errs []error
	for _, op := range s.operations() {
		known = append(known, cmp.Or(op.OperationID, op.String()))
		asked := false
		for _, name := range []string{op.OperationID, op.String()} {
			if _, ok := wanted[name]; ok && name != "" {
				wanted[name], asked = true, true
			}
		}
		if len(wanted) > 0 && !asked {
			continue
		}
		t, err := s.tool(op)
		switch {
		case err == nil:
			s.out.Tools = append(s.out.Tools, t)
		case asked || !errors.As(err, new(left)):
			errs = append(errs, fmt.Errorf("%s: %w", op, err))
		default:
			s.note("%s is left out: %v", op, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if !wanted[name] {
			hint := ""
			if near := tool.Nearest(name, known, 3); len(near) > 0 {
				hint = "; did you mean " + strings.Join(near, " or ") + "?"
			}
			errs = append(errs, fmt.Errorf("the document has no operation %.80q%s", name, hint))
		}
	}
	if len(errs) == 0 && len(s.out.Tools) == 0 {
		errs = append(errs, errors.New("the document has no operation that can be a tool"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &s.out, nil
}

func (s *spec) note(format string, args ...any) {
	s.out.Notes = append(s.out.Notes, fmt.Sprintf(format, args...))
}

// left says why an operation cannot be a tool.
type left string

func (l left) Error() string { return string(l) }

// operations are all of them, by path and then by method.
func (s *spec) operations() []operation {
	var all []operation
	paths := s.doc.Paths.Map()
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if paths[path] == nil {
			continue
		}
		ops := paths[path].Operations()
		for _, method := range slices.Sorted(maps.Keys(ops)) {
			if ops[method] != nil && slices.Contains(methods, method) && method != http.MethodOptions {
				all = append(all, operation{ops[method], method, path, paths[path]})
			}
		}
	}
	return all
}

func (s *spec) tool(op operation) (worker.Tool, error) {
	if !strings.HasPrefix(op.path, "/") {
		return worker.Tool{}, left("its path does not begin with /, so it would change the host")
	}
	name, err := s.name(op)
	if err != nil {
		return worker.Tool{}, err
	}
	server, err := s.server(op)
	if err != nil {
		return worker.Tool{}, err
	}
	in, err := s.input(op)
	if err != nil {
		return worker.Tool{}, err
	}
	m := tool.Manifest{
		ID:          name,
		Version:     fault.Truncate(oneParagraph(s.doc.Info.Version), tool.MaxVersion),
		Description: describe(op),
		Effect:      effect(op.method),
		TimeoutMs:   s.cfg.TimeoutMs,
		Tags:        tags(op.Tags),
		Annotations: map[string]string{"openapi.operation": fault.Truncate(oneParagraph(op.String()), tool.MaxAnnotation)},
	}
	if op.Deprecated {
		m.Annotations["openapi.deprecated"] = "true"
	}
	if m.Input, err = s.schema(in.schema()); err != nil {
		return worker.Tool{}, left(fmt.Sprintf("its arguments have no schema that can be used: %v", err))
	}
	m.Output = s.output(op)
	if problems := tool.Check(&m); len(problems) > 0 {
		return worker.Tool{}, left(oneParagraph(problems.Error()))
	}

	e, problems := build(Config{
		Method: op.method, URL: server, Headers: s.cfg.Headers, AllowHosts: s.cfg.AllowHosts,
		AllowPrivate: s.cfg.AllowPrivate, MaxBytes: s.cfg.MaxBytes, Body: json.RawMessage(`"none"`),
	}, &tool.Manifest{ID: name, Effect: m.Effect})
	if len(problems) > 0 {
		return worker.Tool{}, problems
	}
	in.into(e)
	if !sendable(e.base, e.path) {
		return worker.Tool{}, left("its path cannot be sent")
	}
	e.use(s.transport)
	return worker.Tool{Manifest: m, Handler: e}, nil
}

// name is the tool's: from the operationId, else from method and path.
func (s *spec) name(op operation) (string, error) {
	id := op.OperationID
	if id == "" {
		words := strings.FieldsFunc(op.path, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9')
		})
		id = strings.Join(append([]string{strings.ToLower(op.method)}, words...), "_")
	}
	name := tool.SafeName(s.cfg.Prefix + id)
	if other, taken := s.names[name]; taken {
		return "", fmt.Errorf("it would be the tool %s, as %s is already; give each operation an operationId of its own", name, other)
	}
	s.names[name] = op.String()
	return name, nil
}

// server is where the operation is, without a slash at the end.
func (s *spec) server(op operation) (string, error) {
	if s.cfg.Server != "" {
		return strings.TrimSuffix(s.cfg.Server, "/"), nil
	}
	servers := s.doc.Servers
	if op.Servers != nil && len(*op.Servers) > 0 {
		servers = *op.Servers
	} else if len(op.item.Servers) > 0 {
		servers = op.item.Servers
	}
	if len(servers) == 0 || servers[0] == nil {
		return "", errors.New("the document names no server; give one (--server)")
	}
	at := servers[0].URL
	for name, v := range servers[0].Variables {
		if v != nil {
			at = strings.ReplaceAll(at, "{"+name+"}", v.Default)
		}
	}
	if !strings.Contains(at, "://") {
		return "", fmt.Errorf("the server %.80q of the document is not absolute; give one (--server)", at)
	}
	return strings.TrimSuffix(at, "/"), nil
}

func effect(method string) tool.Effect {
	switch method {
	case http.MethodGet, http.MethodHead:
		return tool.Read
	case http.MethodPut, http.MethodDelete:
		return tool.Idempotent
	}
	return tool.Write
}

func describe(op operation) string {
	var parts []string
	for _, s := range []string{op.Summary, op.Description} {
		if s = strings.TrimSpace(strings.ToValidUTF8(s, "\uFFFD")); s != "" && !slices.Contains(parts, s) {
			parts = append(parts, s)
		}
	}
	if len(parts) == 0 {
		parts = []string{op.String()}
	}
	return fault.Truncate(strings.Join(parts, "\n\n"), tool.MaxDescription)
}

func tags(all []string) []string {
	var out []string
	for _, tag := range all {
		if safe := tool.SafeName(tag); !slices.Contains(out, safe) && len(out) < tool.MaxTags {
			out = append(out, safe)
		}
	}
	return out
}

// output is the schema of the one successful answer that the document describes as JSON, where it is simple; else nil, which
// accepts anything: an API that strays a little from its document is still of use.
func (s *spec) output(op operation) json.RawMessage {
	var found *openapi3.SchemaRef
	if op.Responses == nil {
		return nil
	}
	for status, r := range op.Responses.Map() {
		if !strings.HasPrefix(status, "2") || r == nil || r.Value == nil {
			continue
		}
		ref := jsonOf(r.Value.Content)
		if found != nil || ref == nil {
			return nil
		}
		found = ref
	}
	if found == nil {
		return nil
	}
	raw, err := s.schema(found)
	if err != nil || len(raw) > maxOutput {
		return nil
	}
	if _, err := tool.CompileSchema(raw); err != nil {
		return nil
	}
	return raw
}

// jsonOf is the schema of a content's JSON, or nil.
func jsonOf(content openapi3.Content) *openapi3.SchemaRef {
	for _, media := range slices.Sorted(maps.Keys(content)) {
		name, _, _ := strings.Cut(strings.ToLower(media), ";")
		if isJSON(strings.TrimSpace(name)) && content[media] != nil {
			return cmp.Or(content[media].Schema, &openapi3.SchemaRef{Value: &openapi3.Schema{}})
		}
	}
	return nil
}
