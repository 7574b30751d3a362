package tool

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// MarshalJSON writes a Value that is not JSON, because ContentType says so or because it just is not, as a string of
// base64 (RFC 4648 §4), and "encoding":"base64" beside it. In MessagePack a Value is bytes in any case.
func (r Result) MarshalJSON() ([]byte, error) {
	var coded string
	if len(r.Value) > 0 && !(isJSON(r.ContentType) && json.Valid(r.Value)) {
		coded = base64Encoding
		r.Value = fmt.Appendf(nil, "%q", base64.StdEncoding.EncodeToString(r.Value))
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // whoever called us escapes what we give, if that is wanted
	err := enc.Encode(resultJSON{(*plainResult)(&r), coded})
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *Result) UnmarshalJSON(b []byte) error {
	in := resultJSON{plainResult: (*plainResult)(r)}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	switch in.Encoding {
	case "":
		return nil
	case base64Encoding:
		var value []byte
		if err := json.Unmarshal(r.Value, &value); err != nil {
			return fmt.Errorf("value: expected a string of base64, as encoding says: %w", err)
		}
		r.Value = value
		return nil
	}
	return fmt.Errorf("encoding: expected %s or nothing, got %s", base64Encoding, quote(in.Encoding, maxShown))
}

const base64Encoding = "base64"

// A plainResult is a Result without methods.
type plainResult Result

type resultJSON struct {
	*plainResult
	Encoding string `json:"encoding,omitempty"` // of Value
}
