package tool

import (
	"encoding/json"
	"time"
)

// A Manifest is what a tool declares about itself. Parse makes one from YAML or JSON; Check finds its mistakes.
type Manifest struct {
	ID          string          `json:"id" msgpack:"id"`
	Version     string          `json:"version,omitempty" msgpack:"version,omitempty"`
	Description string          `json:"description,omitempty" msgpack:"description,omitempty"`
	Input       json.RawMessage `json:"input_schema,omitempty" msgpack:"input_schema,omitempty"`   // JSON Schema; nil accepts any object
	Output      json.RawMessage `json:"output_schema,omitempty" msgpack:"output_schema,omitempty"` // JSON Schema; nil accepts anything

	Effect        Effect `json:"effect,omitempty" msgpack:"effect,omitempty"`
	TimeoutMs     int64  `json:"timeout_ms,omitempty" msgpack:"timeout_ms,omitempty"`           // total; 0 means DefaultTimeout
	IdleTimeoutMs int64  `json:"idle_timeout_ms,omitempty" msgpack:"idle_timeout_ms,omitempty"` // reset by progress; 0 means off

	Retry          *RetryPolicy    `json:"retry_policy,omitempty" msgpack:"retry_policy,omitempty"`
	Breaker        *BreakerPolicy  `json:"circuit_breaker,omitempty" msgpack:"circuit_breaker,omitempty"`
	Classification *Classification `json:"classification,omitempty" msgpack:"classification,omitempty"`

	// KeepsKeys says that the worker remembers idempotency keys, so that a write may be sent again after an unknown run.
	KeepsKeys bool `json:"idempotency_keys,omitempty" msgpack:"idempotency_keys,omitempty"`

	Fallback     string          `json:"fallback,omitempty" msgpack:"fallback,omitempty"`         // short for one alternative
	Alternatives []string        `json:"alternatives,omitempty" msgpack:"alternatives,omitempty"` // tried in order, at most 3
	FallbackOn   []string        `json:"fallback_on,omitempty" msgpack:"fallback_on,omitempty"`   // see Call.FallbackOn
	Optional     bool            `json:"optional,omitempty" msgpack:"optional,omitempty"`
	Default      json.RawMessage `json:"default,omitempty" msgpack:"default,omitempty"`

	Tags        []string          `json:"tags,omitempty" msgpack:"tags,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty" msgpack:"annotations,omitempty"`
}

// A RetryPolicy is seed 000 §2.2, field for field. Nil fields say nothing and leave the word to the next layer.
type RetryPolicy struct {
	Strategy       string   `json:"strategy,omitempty" msgpack:"strategy,omitempty"` // exponential_backoff (or exponential), linear, constant, none
	InitialDelayMs *int64   `json:"initial_delay_ms,omitempty" msgpack:"initial_delay_ms,omitempty"`
	MaxDelayMs     *int64   `json:"max_delay_ms,omitempty" msgpack:"max_delay_ms,omitempty"`
	Multiplier     *float64 `json:"multiplier,omitempty" msgpack:"multiplier,omitempty"`
	JitterPercent  *float64 `json:"jitter_percent,omitempty" msgpack:"jitter_percent,omitempty"`
	MaxAttempts    *int     `json:"max_attempts,omitempty" msgpack:"max_attempts,omitempty"`
	MaxTotalTimeMs *int64   `json:"max_total_time_ms,omitempty" msgpack:"max_total_time_ms,omitempty"`
}

// A BreakerPolicy is seed 000 §3.2. Nil fields mean the defaults: 5, 2 and 30,000 ms.
type BreakerPolicy struct {
	FailureThreshold *int   `json:"failure_threshold,omitempty" msgpack:"failure_threshold,omitempty"`
	SuccessThreshold *int   `json:"success_threshold,omitempty" msgpack:"success_threshold,omitempty"`
	TimeoutMs        *int64 `json:"timeout_ms,omitempty" msgpack:"timeout_ms,omitempty"` // how long it stays open

	// Mode is what opens it: consecutive failures (the default), or the share of failure_rate or slow_calls within
	// WindowMs (5 min), of at least MinCalls (10) calls, from Rate (0.5) on. A slow call takes SlowMs (10 s) or more.
	Mode     string   `json:"mode,omitempty" msgpack:"mode,omitempty"`
	WindowMs *int64   `json:"window_ms,omitempty" msgpack:"window_ms,omitempty"`
	MinCalls *int     `json:"min_calls,omitempty" msgpack:"min_calls,omitempty"`
	Rate     *float64 `json:"rate,omitempty" msgpack:"rate,omitempty"`
	SlowMs   *int64   `json:"slow_ms,omitempty" msgpack:"slow_ms,omitempty"`

	// TimeoutGrowth multiplies TimeoutMs each time it opens again without having closed, up to MaxTimeoutMs (ten times
	// TimeoutMs). Nil means that it does not grow.
	TimeoutGrowth *float64 `json:"timeout_growth,omitempty" msgpack:"timeout_growth,omitempty"`
	MaxTimeoutMs  *int64   `json:"max_timeout_ms,omitempty" msgpack:"max_timeout_ms,omitempty"`

	Probes        *int `json:"probes,omitempty" msgpack:"probes,omitempty"`                 // at once, in the fleet; 1
	MinReporters  *int `json:"min_reporters,omitempty" msgpack:"min_reporters,omitempty"`   // executors that must agree on failures that no worker reported; 2, or 1 where one lives
	DistinctCalls bool `json:"distinct_calls,omitempty" msgpack:"distinct_calls,omitempty"` // attempts of one call count once
	RampUp        bool `json:"ramp_up,omitempty" msgpack:"ramp_up,omitempty"`               // calls come back gradually, over half of TimeoutMs
}

// A Classification overrides what faults of this tool mean: by kind, or by the fault's code, which wins.
type Classification struct {
	Kinds map[string]Override `json:"kinds,omitempty" msgpack:"kinds,omitempty"`
	Codes map[string]Override `json:"codes,omitempty" msgpack:"codes,omitempty"`
}

// An Override changes one fault's meaning for one tool. In YAML a bare word is short for the class: `503: permanent`.
type Override struct {
	Class   string `json:"class,omitempty" msgpack:"class,omitempty"`     // transient or permanent; empty keeps the kind's own
	Retry   *bool  `json:"retry,omitempty" msgpack:"retry,omitempty"`     // nil keeps what the class says
	Breaker *bool  `json:"breaker,omitempty" msgpack:"breaker,omitempty"` // whether it counts; nil keeps the kind's own
}

// Timeout is how long one attempt may take: TimeoutMs, or DefaultTimeout where it says nothing.
func (m *Manifest) Timeout() time.Duration {
	if m == nil || m.TimeoutMs <= 0 {
		return DefaultTimeout
	}
	return time.Duration(m.TimeoutMs) * time.Millisecond
}
