package tool

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/toolbus/toolbus/fault"
)

// Bounds of a manifest.
const (
	MaxAlternatives = 3 // design §9
	MaxTags         = 32
	MaxAnnotations  = 64
	MaxOverrides    = 64   // per kind and per code
	MaxDescription  = 4096 // characters
	MaxVersion      = 64   // characters
	MaxAnnotation   = 1024 // characters of one annotation
	MaxDefault      = 64 << 10
)

const day = 24 * 60 * 60 * 1000 // ms

// A span bounds a number. Without hi it is open above.
type span struct {
	lo, hi float64
	unit   string // " of milliseconds"
	whole  bool
}

var spans = map[string]span{
	"timeout_ms":                        {lo: 1, hi: day, unit: " of milliseconds", whole: true},
	"idle_timeout_ms":                   {lo: 1, hi: day, unit: " of milliseconds", whole: true},
	"retry_policy.initial_delay_ms":     {lo: 0, hi: day, unit: " of milliseconds", whole: true},
	"retry_policy.max_delay_ms":         {lo: 0, hi: day, unit: " of milliseconds", whole: true},
	"retry_policy.max_total_time_ms":    {lo: 0, hi: day, unit: " of milliseconds", whole: true},
	"retry_policy.max_attempts":         {lo: 1, whole: true},
	"retry_policy.multiplier":           {lo: 1},
	"retry_policy.jitter_percent":       {lo: 0, hi: 100},
	"circuit_breaker.failure_threshold": {lo: 1, whole: true},
	"circuit_breaker.success_threshold": {lo: 1, whole: true},
	"circuit_breaker.timeout_ms":        {lo: 1, hi: day, unit: " of milliseconds", whole: true},
	"circuit_breaker.max_timeout_ms":    {lo: 1, hi: day, unit: " of milliseconds", whole: true},
	"circuit_breaker.window_ms":         {lo: 1000, hi: day, unit: " of milliseconds", whole: true},
	"circuit_breaker.slow_ms":           {lo: 1, hi: day, unit: " of milliseconds", whole: true},
	"circuit_breaker.min_calls":         {lo: 1, whole: true},
	"circuit_breaker.rate":              {lo: 0.01, hi: 1},
	"circuit_breaker.timeout_growth":    {lo: 1, hi: 100},
	"circuit_breaker.probes":            {lo: 1, hi: 64, whole: true},
	"circuit_breaker.min_reporters":     {lo: 1, hi: 16, whole: true},
}

func (s span) holds(n float64) bool {
	hi := s.hi
	if hi == 0 {
		hi = math.MaxInt32
	}
	return s.lo <= n && n <= hi // false for NaN
}

// want is "a whole number of at least 1".
func (s span) want() string {
	what := "a number"
	if s.whole {
		what = "a whole number"
	}
	if s.hi == 0 {
		return fmt.Sprintf("%s%s of at least %g", what, s.unit, s.lo)
	}
	return fmt.Sprintf("%s%s from %g to %.0f", what, s.unit, s.lo, s.hi)
}

var (
	effects    = []string{string(Read), string(Idempotent), string(Write)}
	strategies = []string{"exponential_backoff", "exponential", "linear", "constant", "none"}
	modes      = []string{"consecutive", "failure_rate", "slow_calls"}
	classes    = []string{string(fault.Transient), string(fault.Permanent)}

	// What the executor did itself means the same for every tool.
	own = []string{string(fault.CircuitOpen), string(fault.Cancelled), string(fault.Deadline), string(fault.LoopBlocked)}
)

// Check finds all the mistakes of a manifest that was not read by Parse. It is nil where there are none.
func Check(m *Manifest) Problems {
	return check(m).problems
}

// A checker finds mistakes, and keeps the schemas that it compiled on the way.
type checker struct {
	problems      Problems
	input, output *Schema
}

func check(m *Manifest) *checker {
	c := &checker{}
	c.names(m)
	c.texts(m)
	c.times(m)
	c.retry(m.Retry)
	c.breaker(m.Breaker)
	c.classification(m.Classification)
	c.fallbackOn(m.FallbackOn)
	c.schemas(m)
	return c
}

func (c *checker) say(field, format string, args ...any) {
	c.problems = append(c.problems, Problem{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) names(m *Manifest) {
	c.name("id", m.ID)
	if m.Fallback != "" {
		c.other("fallback", m.Fallback, m.ID)
	}
	if m.Fallback != "" && len(m.Alternatives) > 0 {
		c.say("fallback", "is short for one alternative, and alternatives are given too; keep one of the two")
	}
	if n := len(m.Alternatives); n > MaxAlternatives {
		c.say("alternatives", "expected at most %d, got %d", MaxAlternatives, n)
	}
	for i, name := range m.Alternatives {
		field := fmt.Sprintf("alternatives[%d]", i)
		if slices.Contains(m.Alternatives[:i], name) {
			c.say(field, "%s is there twice", quote(name, maxShown))
			continue
		}
		c.other(field, name, m.ID)
	}
	if n := len(m.Tags); n > MaxTags {
		c.say("tags", "expected at most %d, got %d", MaxTags, n)
	}
	for i, tag := range m.Tags {
		if err := checkToken("tag", tag, MaxName); err != nil {
			c.say(fmt.Sprintf("tags[%d]", i), "%v", err)
		}
	}
}

func (c *checker) name(field, name string) {
	if err := CheckName(name); err != nil {
		c.say(field, "%v", err)
	}
}

func (c *checker) other(field, name, self string) {
	if name == self {
		c.say(field, "%s is the tool itself; name another", quote(name, maxShown))
		return
	}
	c.name(field, name)
}

func (c *checker) texts(m *Manifest) {
	c.line("version", m.Version, MaxVersion)
	if n := utf8.RuneCountInString(m.Description); n > MaxDescription {
		c.say("description", "expected at most %d characters, got %d", MaxDescription, n)
	}
	if !utf8.ValidString(m.Description) {
		c.say("description", "expected UTF-8, got other bytes")
	}
	if n := len(m.Annotations); n > MaxAnnotations {
		c.say("annotations", "expected at most %d, got %d", MaxAnnotations, n)
	}
	for _, name := range sorted(m.Annotations) {
		field := "annotations." + plain(name, maxShown)
		c.line(field, name, MaxID)
		if v := m.Annotations[name]; utf8.RuneCountInString(v) > MaxAnnotation || !utf8.ValidString(v) {
			c.say(field, "expected at most %d characters of UTF-8, got %d bytes", MaxAnnotation, len(v))
		}
	}
	c.oneOf("effect", string(m.Effect), effects)
}

// line checks one line of text that people will see.
func (c *checker) line(field, s string, most int) {
	if n := utf8.RuneCountInString(s); n > most {
		c.say(field, "expected at most %d characters, got %d", most, n)
		return
	}
	if i := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }); i >= 0 {
		c.say(field, "expected text that prints, got %s", quote(s, maxShown))
	}
}

func (c *checker) oneOf(field, s string, words []string) {
	if s != "" && !slices.Contains(words, s) {
		c.say(field, "%s", notOneOf(s, words))
	}
}

func notOneOf(s string, words []string) string {
	return fmt.Sprintf("expected %s, got %s%s", strings.Join(words, " or "), quote(s, maxShown), meant(s, words))
}

// meant is "; did you mean read?" where one of the words is near.
func meant(s string, words []string) string {
	near := Nearest(s, words, 1)
	if len(near) == 0 {
		return ""
	}
	return "; did you mean " + near[0] + "?"
}

func (c *checker) times(m *Manifest) {
	if m.TimeoutMs != 0 {
		c.number("timeout_ms", float64(m.TimeoutMs))
	}
	if m.IdleTimeoutMs == 0 {
		return
	}
	c.number("idle_timeout_ms", float64(m.IdleTimeoutMs))
	if total := m.Timeout().Milliseconds(); m.IdleTimeoutMs > total {
		c.say("idle_timeout_ms", "expected at most timeout_ms, which is %d, got %d", total, m.IdleTimeoutMs)
	}
}

func (c *checker) number(field string, n float64) {
	if s := spans[field]; !s.holds(n) {
		c.say(field, "expected %s, got %v", s.want(), json.Number(fmt.Sprint(n)))
	}
}

func (c *checker) retry(p *RetryPolicy) {
	if p == nil {
		return
	}
	c.oneOf("retry_policy.strategy", p.Strategy, strategies)
	pointed(c, "retry_policy.initial_delay_ms", p.InitialDelayMs)
	pointed(c, "retry_policy.max_delay_ms", p.MaxDelayMs)
	pointed(c, "retry_policy.multiplier", p.Multiplier)
	pointed(c, "retry_policy.jitter_percent", p.JitterPercent)
	pointed(c, "retry_policy.max_attempts", p.MaxAttempts)
	pointed(c, "retry_policy.max_total_time_ms", p.MaxTotalTimeMs)
	if p.InitialDelayMs != nil && p.MaxDelayMs != nil && *p.MaxDelayMs < *p.InitialDelayMs {
		c.say("retry_policy.max_delay_ms", "expected at least initial_delay_ms, which is %d, got %d", *p.InitialDelayMs, *p.MaxDelayMs)
	}
}

func (c *checker) breaker(p *BreakerPolicy) {
	if p == nil {
		return
	}
	pointed(c, "circuit_breaker.failure_threshold", p.FailureThreshold)
	pointed(c, "circuit_breaker.success_threshold", p.SuccessThreshold)
	pointed(c, "circuit_breaker.timeout_ms", p.TimeoutMs)
	c.oneOf("circuit_breaker.mode", p.Mode, modes)
	pointed(c, "circuit_breaker.window_ms", p.WindowMs)
	pointed(c, "circuit_breaker.min_calls", p.MinCalls)
	pointed(c, "circuit_breaker.rate", p.Rate)
	pointed(c, "circuit_breaker.slow_ms", p.SlowMs)
	pointed(c, "circuit_breaker.timeout_growth", p.TimeoutGrowth)
	pointed(c, "circuit_breaker.max_timeout_ms", p.MaxTimeoutMs)
	pointed(c, "circuit_breaker.probes", p.Probes)
	pointed(c, "circuit_breaker.min_reporters", p.MinReporters)
}

func pointed[T int | int64 | float64](c *checker, field string, n *T) {
	if n != nil {
		c.number(field, float64(*n))
	}
}

func (c *checker) classification(k *Classification) {
	if k == nil {
		return
	}
	var known []string
	for _, kind := range fault.Kinds() {
		if !slices.Contains(own, string(kind)) {
			known = append(known, string(kind))
		}
	}
	for _, kind := range sorted(k.Kinds) {
		field := "classification.kinds." + plain(kind, maxShown)
		switch {
		case slices.Contains(own, kind):
			c.say(field, "this kind is the executor's own, no manifest can change it; remove it")
		case !slices.Contains(known, kind):
			c.say(field, "no fault is of this kind%s", cmp.Or(meant(kind, known), "; known are "+list(known, 400)))
		}
		c.override(field, k.Kinds[kind])
	}
	for _, code := range sorted(k.Codes) {
		field := "classification.codes." + plain(code, maxShown)
		if code == "" {
			c.say(field, "expected a code, got nothing")
		}
		c.line(field, code, MaxName)
		c.override(field, k.Codes[code])
	}
	if n := max(len(k.Kinds), len(k.Codes)); n > MaxOverrides {
		c.say("classification", "expected at most %d overrides, got %d", MaxOverrides, n)
	}
}

// AnyPermanent stands in fallback_on for every kind of permanent fault.
const AnyPermanent = "permanent"

// CheckFallbackOn says what is wrong with the fallback_on of a call or manifest, or nil: each is a kind of permanent fault
// or AnyPermanent, and none is there twice. The error is Problems.
func CheckFallbackOn(list []string) error {
	c := &checker{}
	c.fallbackOn(list)
	if c.problems == nil {
		return nil
	}
	return c.problems
}

func (c *checker) fallbackOn(given []string) {
	words := []string{AnyPermanent}
	for _, kind := range fault.Kinds() {
		if kind.Spec().Class == fault.Permanent {
			words = append(words, string(kind))
		}
	}
	if n := len(given); n > len(words) {
		c.say("fallback_on", "expected at most %d, got %d", len(words), n)
		return
	}
	for i, word := range given {
		field := fmt.Sprintf("fallback_on[%d]", i)
		kind := fault.Kind(word)
		switch {
		case slices.Contains(given[:i], word):
			c.say(field, "%s is there twice", quote(word, maxShown))
		case slices.Contains(words, word):
		case kind.Known() && kind.Spec().Class == fault.Neutral:
			c.say(field, "%s ends a call, and no alternative is tried; remove it", word)
		case kind.Known():
			c.say(field, "%s is transient, and after such faults an alternative is tried in any case; remove it", word)
		default:
			c.say(field, "no permanent fault is of the kind %s%s", quote(word, maxShown), cmp.Or(meant(word, words), "; known are "+list(words, 400)))
		}
	}
}

func (c *checker) override(field string, o Override) {
	c.oneOf(field, o.Class, classes)
	if o == (Override{}) {
		c.say(field, "says nothing; give class, retry or breaker")
	}
}

func (c *checker) schemas(m *Manifest) {
	c.input = c.schema("input_schema", m.Input)
	c.output = c.schema("output_schema", m.Output)
	if c.input != nil {
		c.objects(m.Input)
	}
	if m.Default == nil {
		return
	}
	v, err := readDefault(m.Default)
	if err != nil {
		c.say("default", "%v", err)
		return
	}
	if c.output == nil {
		return
	}
	for _, v := range c.output.Validate(v) {
		c.problems = append(c.problems, Problem{Field: "default", Message: "does not fit output_schema: " + sentence(v, "the value"), at: v.Pointer})
	}
}

// CheckDefault says what is wrong with the default of a call or manifest, or nil: one JSON value of at most MaxDefault
// bytes.
func CheckDefault(raw []byte) error {
	_, err := readDefault(raw)
	return err
}

func readDefault(raw []byte) (any, error) {
	if len(raw) > MaxDefault {
		return nil, fmt.Errorf("expected at most %d bytes, got %d", MaxDefault, len(raw))
	}
	v, flaw := readJSON(raw)
	if flaw != nil {
		return nil, fmt.Errorf("expected a JSON value: %s", flaw.text(raw))
	}
	return v, nil
}

func (c *checker) schema(field string, raw json.RawMessage) *Schema {
	if raw == nil {
		return nil
	}
	s, err := CompileSchema(raw)
	if err == nil {
		return s
	}
	var bad *SchemaError
	if !errors.As(err, &bad) {
		c.say(field, "%v", err)
		return nil
	}
	for _, p := range bad.Problems {
		c.problems = append(c.problems, Problem{Field: field, Message: sentence(p, "the schema"), at: p.Pointer})
	}
	return nil
}

// objects says so where an input schema fits no arguments, because they are always one object.
func (c *checker) objects(raw json.RawMessage) {
	var top struct {
		Type any `json:"type"`
	}
	if json.Unmarshal(raw, &top) != nil {
		return // a boolean schema
	}
	switch t := top.Type.(type) {
	case string:
		if t == "object" {
			return
		}
	case []any:
		if slices.Contains(t, any("object")) {
			return
		}
	default:
		return
	}
	c.problems = append(c.problems, Problem{Field: "input_schema", Message: "/type: expected object, as arguments are always one JSON object", at: "/type"})
}
