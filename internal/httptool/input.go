package httptool

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/toolbus/toolbus/tool"
)

// An input is the parameters and the body of an operation as one object of arguments, and where each of them goes.
type input struct {
	properties openapi3.Schemas
	required   []string

	path    template
	query   []param
	headers []header
	body    string // the argument that is the body; empty where there is none
	form    bool
}

func (s *spec) input(op operation) (*input, error) {
	in := &input{properties: openapi3.Schemas{}}
	byPath := map[string]string{} // name in the path to argument
	for _, p := range parameters(op) {
		if p.In == openapi3.ParameterInCookie || p.In == openapi3.ParameterInHeader && isOurs(p.Name) {
			if p.Required && p.In == openapi3.ParameterInCookie {
				return nil, left(fmt.Sprintf("it needs the cookie %.40s, and cookies are not supported", p.Name))
			}
			continue
		}
		if p.In == openapi3.ParameterInHeader && hasHeader(s.cfg.Headers, p.Name) {
			continue // the configuration says it once and for all
		}
		arg := in.argument(p.Name, p.In)
		in.properties[arg] = schemaOf(p)
		if p.Required || p.In == openapi3.ParameterInPath {
			in.required = append(in.required, arg)
		}
		switch whole := (template{{arg: arg}}); p.In {
		case openapi3.ParameterInPath:
			byPath[p.Name] = arg
		case openapi3.ParameterInQuery:
			in.query = append(in.query, param{name: p.Name, value: whole, style: styleOf(p)})
		case openapi3.ParameterInHeader:
			if !isToken(p.Name) {
				return nil, left(fmt.Sprintf("%.40q is not the name of a header", p.Name))
			}
			in.headers = append(in.headers, header{name: p.Name, value: whole})
		}
	}
	t, err := parseTemplate(op.path)
	if err != nil {
		return nil, left(fmt.Sprintf("its path: %v", err))
	}
	for i, p := range t {
		if p.arg == "" {
			continue
		}
		arg, ok := byPath[p.arg]
		if !ok {
			return nil, left(fmt.Sprintf("its path has {%.40s}, and no parameter is of that name", p.arg))
		}
		t[i].arg = arg
	}
	in.path = t
	return in, in.takeBody(op)
}

// parameters are those of the operation, and of its path where the operation does not have its own.
func parameters(op operation) []*openapi3.Parameter {
	var all []*openapi3.Parameter
	seen := map[string]bool{}
	for _, list := range []openapi3.Parameters{op.Parameters, op.item.Parameters} {
		for _, ref := range list {
			if ref == nil || ref.Value == nil || seen[ref.Value.In+" "+ref.Value.Name] {
				continue
			}
			seen[ref.Value.In+" "+ref.Value.Name] = true
			all = append(all, ref.Value)
		}
	}
	return all
}

// isOurs names the headers that OpenAPI says to ignore as parameters, and those that the bridge sets.
func isOurs(name string) bool {
	canonical := http.CanonicalHeaderKey(name)
	return canonical == "Accept" || canonical == "Content-Type" || canonical == "Authorization" || canonical == "Idempotency-Key" || slices.Contains(ours, canonical)
}

func hasHeader(headers map[string]string, name string) bool {
	for h := range headers {
		if strings.EqualFold(h, name) {
			return true
		}
	}
	return false
}

// argument is the name of a parameter as an argument: safe for models, and not taken.
func (in *input) argument(name, where string) string {
	arg := tool.SafeName(name)
	if _, taken := in.properties[arg]; taken {
		arg = tool.SafeName(name + "_" + where)
	}
	for in.properties[arg] != nil {
		arg = tool.SafeName(arg + "_")
	}
	return arg
}

// schemaOf is the schema of a parameter, with its description.
func schemaOf(p *openapi3.Parameter) *openapi3.SchemaRef {
	ref := p.Schema
	if ref == nil {
		ref = jsonOf(p.Content)
	}
	if ref == nil || ref.Value == nil {
		ref = &openapi3.SchemaRef{Value: &openapi3.Schema{}}
	}
	if p.Description == "" {
		return ref
	}
	if ref.Ref != "" {
		return &openapi3.SchemaRef{Value: &openapi3.Schema{AllOf: openapi3.SchemaRefs{ref}, Description: p.Description}}
	}
	described := *ref.Value
	described.Description = cmp.Or(described.Description, p.Description)
	return &openapi3.SchemaRef{Value: &described}
}

// styleOf is how a parameter of the query is written.
func styleOf(p *openapi3.Parameter) style {
	explode := p.Explode == nil && cmp.Or(p.Style, "form") == "form" || p.Explode != nil && *p.Explode
	switch {
	case p.Schema == nil && p.Content != nil:
		return asJSON
	case p.Style == "deepObject":
		return deepObject
	case p.Style == "spaceDelimited" && !explode:
		return spaces
	case p.Style == "pipeDelimited" && !explode:
		return pipes
	case !explode:
		return commas
	case p.Schema != nil && p.Schema.Value != nil && p.Schema.Value.Type.Is("object"):
		return spread
	}
	return repeated
}

// takeBody makes an argument of the body.
func (in *input) takeBody(op operation) error {
	if op.RequestBody == nil || op.RequestBody.Value == nil {
		return nil
	}
	b := op.RequestBody.Value
	schema := jsonOf(b.Content)
	if media := b.Content["application/x-www-form-urlencoded"]; schema == nil && media != nil {
		schema, in.form = cmp.Or(media.Schema, &openapi3.SchemaRef{Value: &openapi3.Schema{}}), true
	}
	switch {
	case schema == nil && b.Required:
		return left("its body is neither JSON nor a form")
	case schema == nil:
		return nil
	}
	in.body = in.argument("body", "request")
	in.properties[in.body] = schema
	if b.Required {
		in.required = append(in.required, in.body)
	}
	return nil
}

// schema is that of the arguments.
func (in *input) schema() *openapi3.SchemaRef {
	no := false
	return &openapi3.SchemaRef{Value: &openapi3.Schema{
		Type: &openapi3.Types{"object"}, Properties: in.properties, Required: in.required,
		AdditionalProperties: openapi3.AdditionalProperties{Has: &no},
	}}
}

// into puts everything where it goes.
func (in *input) into(e *endpoint) {
	e.path = append(e.path, in.path...)
	e.query = append(e.query, in.query...)
	e.headers = append(e.headers, in.headers...)
	e.form = in.form
	if in.body != "" {
		e.send = func(args arguments) (any, bool) {
			v, ok := args[in.body]
			return v, ok
		}
	}
}
