package httptool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// Bounds of a schema on its way from OpenAPI to JSON Schema, before it is checked as any other.
const (
	maxSchemas = 200 // that a schema refers to
	components = "#/components/schemas/"
)

// schema is a schema of the document as JSON Schema 2020-12, with all that it refers to in $defs.
func (s *spec) schema(ref *openapi3.SchemaRef) (json.RawMessage, error) {
	c := converter{old: strings.HasPrefix(s.doc.OpenAPI, "3.0"), defs: map[string]any{}}
	root, err := c.take(ref)
	if err != nil {
		return nil, err
	}
	for len(c.wanted) > 0 {
		name := c.wanted[0]
		c.wanted = c.wanted[1:]
		if s.doc.Components == nil || s.doc.Components.Schemas[name] == nil {
			return nil, fmt.Errorf("it refers to the schema %.80q, which is not there", name)
		}
		if c.defs[name], err = c.take(s.doc.Components.Schemas[name]); err != nil {
			return nil, err
		}
	}
	if object, ok := root.(map[string]any); ok && len(c.defs) > 0 {
		object["$defs"] = c.defs
	}
	return marshal(root)
}

// A converter rewrites what OpenAPI has of its own, and finds out what is referred to.
type converter struct {
	old    bool // 3.0: nullable, exclusive bounds that are true or false
	defs   map[string]any
	wanted []string
}

func (c *converter) take(ref *openapi3.SchemaRef) (any, error) {
	raw, err := ref.MarshalJSON()
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return c.schema(v)
}

// Where schemas stand within a schema.
var (
	oneInside  = []string{"not", "items", "contains", "propertyNames", "if", "then", "else", "additionalProperties", "unevaluatedItems", "unevaluatedProperties"}
	listInside = []string{"oneOf", "anyOf", "allOf", "prefixItems"}
	mapInside  = []string{"properties", "patternProperties", "dependentSchemas", "$defs"}
	ofOpenAPI  = []string{"discriminator", "xml", "externalDocs", "example", "$id", "$anchor", "$schema"}
)

func (c *converter) schema(v any) (any, error) {
	s, ok := v.(map[string]any)
	if !ok {
		return v, nil // true or false
	}
	for _, name := range ofOpenAPI {
		delete(s, name)
	}
	for name := range s {
		if strings.HasPrefix(name, "x-") {
			delete(s, name)
		}
	}
	if ref, ok := s["$ref"].(string); ok {
		to, err := c.refer(ref)
		if err != nil {
			return nil, err
		}
		s["$ref"] = to
	}
	if c.old {
		c.modern(s)
	}
	return s, c.inside(s)
}

// inside rewrites the schemas within a schema.
func (c *converter) inside(s map[string]any) (err error) {
	for _, name := range oneInside {
		if v, ok := s[name]; ok && err == nil {
			s[name], err = c.schema(v)
		}
	}
	for _, name := range listInside {
		list, _ := s[name].([]any)
		for i := range list {
			if err == nil {
				list[i], err = c.schema(list[i])
			}
		}
	}
	for _, name := range mapInside {
		object, _ := s[name].(map[string]any)
		for key := range object {
			if err == nil {
				object[key], err = c.schema(object[key])
			}
		}
	}
	return err
}

// refer is where a reference leads in the schema that is made.
func (c *converter) refer(ref string) (string, error) {
	path, ok := strings.CutPrefix(ref, components)
	if !ok {
		return "", fmt.Errorf("it refers to %.80q, and only %s is followed", ref, components)
	}
	token, rest, deeper := strings.Cut(path, "/")
	name := strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
	if _, seen := c.defs[name]; !seen {
		if len(c.defs) >= maxSchemas {
			return "", fmt.Errorf("it refers to more than %d schemas", maxSchemas)
		}
		c.defs[name] = true
		c.wanted = append(c.wanted, name)
	}
	if deeper {
		token += "/" + rest
	}
	return "#/$defs/" + token, nil
}

// modern rewrites what 3.0 has differently: nullable, and exclusive bounds beside the others.
func (c *converter) modern(s map[string]any) {
	for exclusive, bound := range map[string]string{"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"} {
		yes, ok := s[exclusive].(bool)
		if !ok {
			continue
		}
		delete(s, exclusive)
		if n, there := s[bound]; yes && there {
			s[exclusive] = n
			delete(s, bound)
		}
	}
	if s["nullable"] == true {
		if t, ok := s["type"].(string); ok {
			s["type"] = []any{t, "null"}
		}
		if list, ok := s["enum"].([]any); ok {
			s["enum"] = append(list, nil)
		}
	}
	delete(s, "nullable")
}
