package tool

import (
	"encoding/json"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
)

// Infer makes an input or output schema from a Go type: fields by their json names, required unless omitempty or
// omitzero, unknown properties refused. A jsonschema struct tag describes a field. A type that refers to itself, and one
// that JSON cannot hold, are errors.
func Infer[T any]() (json.RawMessage, error) {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		return nil, fmt.Errorf("infer a schema: %w", err)
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("infer a schema: %w", err)
	}
	return raw, nil
}
