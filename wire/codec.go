package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
)

// A Large record may hold more than ScanValues values and says how many. A type that embeds one is one.
type Large interface{ MaxValues() int }

// maxRequest is enough for MaxCalls calls with everything set, which is 150 values each, and 150,000 ids to wait for.
const maxRequest = 300_000

// MaxValues is enough for MaxCalls calls with everything set.
func (TurnRequest) MaxValues() int { return maxRequest }

// MaxValues is as many as a TurnRequest may have.
func (TurnControl) MaxValues() int { return maxRequest }

// MaxValues is enough for MaxTools manifests.
func (DescribeRecord) MaxValues() int { return 100_000 }

// MaxValues is enough for a request or an outcome, and what else an event has.
func (Event) MaxValues() int { return maxRequest + 1000 }

// MaxValues is enough for the largest event, or for MaxEvents of those that have neither a request nor an outcome.
func (Page) MaxValues() int { return maxRequest + 2000 }

// MaxValues is enough for MaxCalls results with ten attempts each.
func (Outcome) MaxValues() int { return maxRequest }

// maxItems bounds every list in a record. An element takes one byte on the wire and some hundred when it is decoded.
const maxItems = 10_000

func limitsOf(v any) ScanLimits {
	if l, ok := v.(Large); ok {
		return ScanLimits{Values: l.MaxValues(), Items: maxItems}
	}
	return ScanLimits{}
}

// Marshal encodes a record, a struct or a pointer to one, as JSON or MsgPack; "" is JSON. The same record gives the
// same bytes, in every language that follows these rules:
//
//   - a struct is a map, its fields in the order in which they are declared, without those that are empty and marked so
//   - the keys of other maps are sorted by their bytes (maps of strings, and those of a manifest; MessagePack has no
//     order for maps of other types)
//   - whole numbers take the shortest form of integer, also those in fields for fractions
//   - raw JSON (arguments, results, schemas) is bytes in MessagePack and stands as it is in JSON, blanks between its
//     tokens dropped
//   - JSON does not escape <, > and &
//
// What Unmarshal would refuse because of a number or of its size is refused here too. Text that is not UTF-8 is not:
// its wrong bytes are replaced. The error is an *Error.
func Marshal(contentType string, v any) ([]byte, error) {
	codec, err := mediaType(contentType)
	if err != nil {
		return nil, err
	}
	if r := reflect.Indirect(reflect.ValueOf(v)); r.Kind() != reflect.Struct {
		return nil, refuse(CodeArgument, "encode %T: expected a struct or a pointer to one", v)
	}
	if codec == JSON {
		return marshalJSON(v)
	}
	return marshalMsgPack(v)
}

func marshalJSON(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, refuse(CodeArgument, "encode %T as JSON: %v", v, err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// encoders are ours: those in the library's own pool come with other people's settings.
var encoders = sync.Pool{New: func() any { return msgpack.NewEncoder(nil) }}

func marshalMsgPack(v any) ([]byte, error) {
	enc := encoders.Get().(*msgpack.Encoder)
	defer encoders.Put(enc)

	var out bytes.Buffer
	enc.Reset(&out)
	enc.SetSortMapKeys(true)
	enc.UseCompactInts(true)
	enc.UseCompactFloats(true)
	err := enc.Encode(v)
	enc.ResetWriter(nil) // do not hold on to out
	if err != nil {
		return nil, refuse(CodeArgument, "encode %T as MessagePack: %v", v, err)
	}

	b := out.Bytes()
	bad := limitsOf(v).scan(b)
	if bad != nil && bad.Code == CodeText {
		mend(b)
		bad = limitsOf(v).scan(b)
	}
	if bad != nil {
		return nil, &Error{Code: bad.Code, Message: "encode a record as MessagePack: " + bad.Message, Offset: bad.Offset}
	}
	return b, nil
}

// The library sorts maps of strings only. A manifest has one more kind, and its bytes must be the same each time.
func init() {
	msgpack.Register(map[string]tool.Override(nil), encodeOverrides, nil)
}

func encodeOverrides(enc *msgpack.Encoder, v reflect.Value) error {
	m := v.Interface().(map[string]tool.Override)
	if m == nil {
		return enc.EncodeNil()
	}
	if err := enc.EncodeMapLen(len(m)); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if err := enc.EncodeString(key); err != nil {
			return err
		}
		if err := enc.Encode(m[key]); err != nil {
			return err
		}
	}
	return nil
}

// Unmarshal decodes one record into v, which points to an empty struct without fields of type any. The content type is
// one that CodecOf gives; "" is JSON.
//
// MessagePack reaches the decoder only after Scan, so the work and the memory are bounded by the length of b. Unknown
// keys are ignored; nil is as good as absent; a float that is a whole number goes into an integer field; raw JSON may be
// a string instead of bytes. What is in a raw field is not looked at: Args is for tool.ParseArgs, which blames one call
// and not the whole turn.
//
// JSON is taken by encoding/json's rules (keys in any case), but UTF-8 only, at most MaxDepth deep, and with no more in its
// lists than in MessagePack. There 1.0 is not an integer.
//
// A key that occurs twice counts once, the last time. A record within a record may be a MessagePack array of all its
// fields: the library takes that, and nobody should send it. The error is an *Error; v may then be filled in part.
func Unmarshal(contentType string, b []byte, v any) error {
	codec, err := mediaType(contentType)
	if err != nil {
		return err
	}
	r := reflect.ValueOf(v)
	if r.Kind() != reflect.Pointer || r.IsNil() || r.Elem().Kind() != reflect.Struct {
		return refuse(CodeArgument, "decode into %T: expected a pointer to a struct", v)
	}
	if codec == JSON {
		return unmarshalJSON(b, v)
	}
	return unmarshalMsgPack(b, v)
}

// Decode is Unmarshal for when nobody said the content type: what begins with { is JSON, anything else MessagePack.
func Decode(b []byte, v any) error {
	if bytes.HasPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte("{")) {
		return Unmarshal(JSON, b, v)
	}
	return Unmarshal(MsgPack, b, v)
}

func unmarshalMsgPack(b []byte, v any) error {
	if err := limitsOf(v).Scan(b); err != nil {
		return err
	}
	if codes[b[0]].kind != dict {
		return refuse(CodeType, "expected a map, got MessagePack code 0x%02x", b[0])
	}
	dec := msgpack.GetDecoder()
	defer msgpack.PutDecoder(dec)
	dec.Reset(bytes.NewReader(integral(b)))
	if err := dec.Decode(v); err != nil {
		return refuse(CodeType, "decode %T: %v", v, err)
	}
	return nil
}

func unmarshalJSON(b []byte, v any) error {
	if err := scanJSON(b); err != nil {
		return err
	}
	if err := limitsOf(v).scanLists(b, reflect.TypeOf(v)); err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return jsonError(v, err)
	}
	return checkInts(reflect.ValueOf(v).Elem())
}

// scanJSON refuses JSON that is no object, not UTF-8 or nested too deep. The rest is for encoding/json.
func scanJSON(b []byte) error {
	rest := bytes.TrimLeft(b, " \t\r\n")
	if len(rest) == 0 {
		return &Error{Code: CodeEmpty, Message: "expected a JSON object, got nothing", Offset: 0}
	}
	if rest[0] != '{' {
		return refuse(CodeJSON, "expected a JSON object, got %s", quote(string(rest[:min(len(rest), 20)])))
	}
	if !utf8.Valid(b) {
		return &Error{Code: CodeText, Message: "the JSON is not UTF-8", Offset: 0}
	}
	depth, inText := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return &Error{Code: CodeTooDeep, Message: "objects and arrays are nested too deep", Offset: i}
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

func jsonError(v any, err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return &Error{Code: CodeJSON, Message: "decode JSON: " + syntax.Error(), Offset: int(syntax.Offset)}
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return &Error{Code: CodeType, Message: "decode " + wrong.Field + ": expected " + wrong.Type.String() + ", got JSON " + fault.Truncate(wrong.Value, 40), Offset: int(wrong.Offset)}
	}
	return refuse(CodeJSON, "decode %T: %s", v, fault.Truncate(err.Error(), 200))
}

// checkInts refuses integers beyond ±2^53 in a record that came as JSON. In MessagePack the scan has seen them.
func checkInts(v reflect.Value) error {
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		if n := v.Int(); n < -maxInt || n > maxInt {
			return refuse(CodeNumber, "%d is beyond ±2^53", n)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return checkInts(v.Elem())
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return nil
		}
		for i := range v.Len() {
			if err := checkInts(v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				continue
			}
			if err := checkInts(v.Field(i)); err != nil {
				return err
			}
		}
	}
	return nil
}
