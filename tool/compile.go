package tool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/toolbus/toolbus/fault"
)

// A Compiled is a manifest without mistakes, with its schemas ready for use. It is only read, so many goroutines may use
// one. Make it with Compile.
type Compiled struct {
	Manifest
	input, output *Schema // nil accepts anything
}

// Compile checks a manifest as Check does and compiles its schemas, once. The error is Problems. The caller must not
// change what m points to afterwards.
func Compile(m Manifest) (*Compiled, error) {
	c := check(&m)
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	return &Compiled{Manifest: m, input: c.input, output: c.output}, nil
}

// maxMessage bounds the message of a fault that lists violations, in bytes. The violations themselves are all there.
const maxMessage = 2000

// CheckArgs says what is wrong with the arguments of a call, or nil: as ParseArgs does, and then all that breaks the
// input schema, in words for the model and as violations.
func (c *Compiled) CheckArgs(raw []byte) *fault.Fault {
	if c.fine(raw) {
		return nil
	}
	args, f := ParseArgs(raw)
	if f != nil {
		f.Tool = c.ID
		return f
	}
	if c.input == nil {
		return nil
	}
	all := c.input.validate(args, len(raw))
	if len(all) == 0 {
		return nil
	}
	return &fault.Fault{
		Kind:        fault.InvalidArguments,
		Message:     fmt.Sprintf("arguments of %s are invalid: %s", c.ID, sentences(all, "the arguments", maxMessage)),
		Execution:   fault.NotStarted,
		Suggestions: []string{"correct these arguments and call " + c.ID + " again"},
		Violations:  all,
		Tool:        c.ID,
	}
}

// fine reports at little cost that CheckArgs would find nothing, which is how it is with most arguments. Where it is false
// there may be something.
func (c *Compiled) fine(raw []byte) bool {
	if len(raw) > MaxArgs || len(raw) == 0 || raw[0] != '{' {
		return false
	}
	if c.input == nil {
		return anyObject.accepts(string(raw))
	}
	return c.input.quickly(raw)
}

// CheckResult says how what the tool answered breaks its output schema, or nil. It looks only at JSON (an empty
// contentType is JSON) and only where there is an output schema.
func (c *Compiled) CheckResult(raw []byte, contentType string) *fault.Fault {
	if c.output == nil || !isJSON(contentType) {
		return nil
	}
	if len(raw) > MaxArgs {
		return c.badResult(fmt.Sprintf("is %d bytes long, at most %d are allowed", len(raw), MaxArgs), nil)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return c.badResult("is empty, but an output schema asks for a value", nil)
	}
	if c.output.quickly(raw) {
		return nil
	}
	v, flaw := readJSON(raw)
	if flaw != nil {
		return c.badResult("is not JSON: "+flaw.text(raw), nil)
	}
	if all := c.output.validate(v, len(raw)); len(all) > 0 {
		return c.badResult("does not fit its output schema: "+sentences(all, "the result", maxMessage), all)
	}
	return nil
}

func (c *Compiled) badResult(problem string, all []fault.Violation) *fault.Fault {
	return &fault.Fault{
		Kind:       fault.InvalidResult,
		Message:    fmt.Sprintf("the result of %s %s", c.ID, problem),
		Execution:  fault.Done,
		Violations: all,
		Tool:       c.ID,
	}
}

func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media == "" || media == "application/json" || strings.HasSuffix(media, "+json")
}

// Overrides is the classification in the terms of package fault. The zero value where the manifest has none.
func (c *Compiled) Overrides() fault.Overrides {
	var all fault.Overrides
	if c.Classification == nil {
		return all
	}
	all.Kinds = make(map[fault.Kind]fault.Override, len(c.Classification.Kinds))
	for kind, o := range c.Classification.Kinds {
		all.Kinds[fault.Kind(kind)] = o.fault()
	}
	all.Codes = make(map[string]fault.Override, len(c.Classification.Codes))
	for code, o := range c.Classification.Codes {
		all.Codes[code] = o.fault()
	}
	return all
}

func (o Override) fault() fault.Override {
	return fault.Override{Class: fault.Class(o.Class), Retry: o.Retry, Breaker: o.Breaker}
}

// Warnings says what is allowed and yet may surprise, in sentences that begin with the tool's name.
func (c *Compiled) Warnings() []string {
	var all []string
	warn := func(sentence string) { all = append(all, c.ID+" "+sentence) }
	if c.Effect == Undeclared {
		warn("declares no effect: it will be sent again after an unknown run")
	}
	if c.Effect == Write && !c.KeepsKeys {
		warn("writes and keeps no idempotency keys: it will not be sent again after an unknown run")
	}
	if c.Description == "" {
		warn("has no description: a model cannot know what it is for")
	}
	if c.Input == nil {
		warn("has no input schema: any object is taken as its arguments")
	}
	if c.Version == "" {
		warn("has no version: workers of different builds cannot be told apart")
	}
	return all
}

// JSON is the manifest in canonical form: no blanks, the fields in the order of Manifest, keys within schemas and the
// default sorted. Equal manifests have equal JSON.
func (m *Manifest) JSON() []byte {
	canonical := *m
	canonical.Input = settle(m.Input)
	canonical.Output = settle(m.Output)
	canonical.Default = settle(m.Default)
	if m.Retry != nil {
		r := *m.Retry
		r.Multiplier, r.JitterPercent = finite(r.Multiplier), finite(r.JitterPercent)
		canonical.Retry = &r
	}
	return encode(canonical)
}

// Digest names the content of a manifest: the first 16 bytes of the SHA-256 of its JSON, in hex.
func (m *Manifest) Digest() string {
	sum := sha256.Sum256(m.JSON())
	return hex.EncodeToString(sum[:16])
}

// finite is nil for what JSON has no number for. Check refuses it; a manifest that was not checked may hold it.
func finite(n *float64) *float64 {
	if n == nil || math.IsNaN(*n) || math.IsInf(*n, 0) {
		return nil
	}
	return n
}

// settle sorts the keys of a JSON text. What is not JSON becomes a JSON string, so that it still has a digest.
func settle(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return nil
	}
	v, flaw := readJSON(raw)
	if flaw != nil {
		return encode(string(raw))
	}
	return encode(v)
}

// encode writes JSON as it is read: without the escapes that HTML would need.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("tool: a value made of JSON does not encode: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
