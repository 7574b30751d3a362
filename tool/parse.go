package tool

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of a manifest file.
const (
	MaxManifestBytes = 256 << 10
	MaxManifestNodes = 20_000 // values, what aliases stand for included
	MaxAliases       = 100
)

// Parse reads a manifest from YAML or JSON, at the top level or under the one key tool as in seed 000. Schemas and the
// default may be written as YAML. file is only named in errors.
//
// The error is Problems: every mistake at once, each with its line. Unknown keys are mistakes.
func Parse(file string, data []byte) (*Manifest, error) {
	p := &parser{file: file, lines: map[string]int{}, size: manifestSize}
	m := p.parse(data)
	if m != nil {
		p.check(m)
	}
	if len(p.problems) > 0 {
		slices.SortStableFunc(p.problems, func(a, b Problem) int { return a.Line - b.Line })
		return nil, p.problems
	}
	return m, nil
}

type parser struct {
	file     string
	size     size
	problems Problems
	lines    map[string]int // by field, and within schemas by field and pointer
}

func (p *parser) say(line int, field, format string, args ...any) {
	p.problems = append(p.problems, Problem{File: p.file, Line: line, Field: field, Message: fmt.Sprintf(format, args...)})
}

// check adds what is wrong with the manifest as a whole, but not of fields that could not be read at all.
func (p *parser) check(m *Manifest) {
	unread := map[string]bool{}
	for _, problem := range p.problems {
		unread[problem.Field] = true
	}
	for _, problem := range Check(m) {
		if unread[problem.Field] {
			continue
		}
		problem.File = p.file
		problem.Line = p.line(problem.Field + problem.at)
		p.problems = append(p.problems, problem)
	}
}

// line is where a field is, or else what it is part of.
func (p *parser) line(field string) int {
	for field != "" {
		if line, ok := p.lines[field]; ok {
			return line
		}
		field = field[:max(0, strings.LastIndexAny(field, "./["))]
	}
	return p.lines[""]
}

func (p *parser) parse(data []byte) *Manifest {
	root := p.document(data)
	if root == nil {
		return nil
	}
	top := deref(root)
	if top.Kind == yaml.MappingNode && len(top.Content) == 2 && top.Content[0].Value == "tool" {
		top = top.Content[1]
	}
	if top = deref(top); top.Kind != yaml.MappingNode {
		p.say(top.Line, "", "expected a mapping with the fields of a manifest, got %s", seen(top))
		return nil
	}
	m := &Manifest{}
	p.object(top, "", map[string]setter{
		"id":               p.text(&m.ID),
		"version":          p.filled(&m.Version),
		"description":      p.text(&m.Description),
		"input_schema":     p.schema(&m.Input),
		"output_schema":    p.schema(&m.Output),
		"effect":           p.filled((*string)(&m.Effect)),
		"timeout_ms":       number(p, &m.TimeoutMs),
		"idle_timeout_ms":  number(p, &m.IdleTimeoutMs),
		"idempotency_keys": p.truth(&m.KeepsKeys),
		"fallback":         p.filled(&m.Fallback),
		"alternatives":     p.texts(&m.Alternatives),
		"fallback_on":      p.texts(&m.FallbackOn),
		"optional":         p.truth(&m.Optional),
		"default":          p.json(&m.Default),
		"tags":             p.texts(&m.Tags),
		"annotations":      p.annotations(&m.Annotations),
		"retry_policy":     p.retry(&m.Retry),
		"circuit_breaker":  p.breaker(&m.Breaker),
		"classification":   p.classification(&m.Classification),
	})
	return m
}

func (p *parser) annotations(to *map[string]string) setter {
	return func(field string, n *yaml.Node) {
		*to = map[string]string{}
		p.each(n, field, func(inner, key string, _, v *yaml.Node) {
			var s string
			p.text(&s)(inner, v)
			(*to)[key] = s
		})
	}
}

func (p *parser) retry(to **RetryPolicy) setter {
	return func(field string, n *yaml.Node) {
		r := &RetryPolicy{}
		*to = r
		p.object(n, field, map[string]setter{
			"strategy":          p.filled(&r.Strategy),
			"initial_delay_ms":  optional(p, &r.InitialDelayMs),
			"max_delay_ms":      optional(p, &r.MaxDelayMs),
			"multiplier":        optional(p, &r.Multiplier),
			"jitter_percent":    optional(p, &r.JitterPercent),
			"max_attempts":      optional(p, &r.MaxAttempts),
			"max_total_time_ms": optional(p, &r.MaxTotalTimeMs),
		})
	}
}

func (p *parser) breaker(to **BreakerPolicy) setter {
	return func(field string, n *yaml.Node) {
		b := &BreakerPolicy{}
		*to = b
		p.object(n, field, map[string]setter{
			"failure_threshold": optional(p, &b.FailureThreshold),
			"success_threshold": optional(p, &b.SuccessThreshold),
			"timeout_ms":        optional(p, &b.TimeoutMs),
			"mode":              p.filled(&b.Mode),
			"window_ms":         optional(p, &b.WindowMs),
			"min_calls":         optional(p, &b.MinCalls),
			"rate":              optional(p, &b.Rate),
			"slow_ms":           optional(p, &b.SlowMs),
			"timeout_growth":    optional(p, &b.TimeoutGrowth),
			"max_timeout_ms":    optional(p, &b.MaxTimeoutMs),
			"probes":            optional(p, &b.Probes),
			"min_reporters":     optional(p, &b.MinReporters),
			"distinct_calls":    p.truth(&b.DistinctCalls),
			"ramp_up":           p.truth(&b.RampUp),
		})
	}
}

func (p *parser) classification(to **Classification) setter {
	return func(field string, n *yaml.Node) {
		c := &Classification{}
		*to = c
		p.object(n, field, map[string]setter{
			"kinds": p.overrides(&c.Kinds),
			"codes": p.overrides(&c.Codes),
		})
	}
}

func (p *parser) overrides(to *map[string]Override) setter {
	return func(field string, n *yaml.Node) {
		*to = map[string]Override{}
		p.each(n, field, func(inner, key string, _, v *yaml.Node) {
			var o Override
			if v.Kind == yaml.ScalarNode {
				p.text(&o.Class)(inner, v)
			} else {
				p.object(v, inner, map[string]setter{
					"class":   p.filled(&o.Class),
					"retry":   p.maybe(&o.Retry),
					"breaker": p.maybe(&o.Breaker),
				})
			}
			(*to)[key] = o
		})
	}
}
