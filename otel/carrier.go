package otel

import (
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/propagation"
)

// A HeaderCarrier lets a propagator read and write the headers of a NATS message: HeaderCarrier(msg.Header). NATS keeps
// the case of header names, and libraries disagree about it: so it writes lower case, as W3C does, and reads any. Nil may
// be read.
type HeaderCarrier map[string][]string

var _ propagation.ValuesGetter = HeaderCarrier{}

// Get is the first value of key, or "".
func (h HeaderCarrier) Get(key string) string {
	if v := h.Values(key); len(v) > 0 {
		return v[0]
	}
	return ""
}

// Values is all values of key. Where it stands in several cases the lower one counts, else the first in byte order.
func (h HeaderCarrier) Values(key string) []string {
	if v, ok := h[strings.ToLower(key)]; ok {
		return v
	}
	found := ""
	for k := range h {
		if strings.EqualFold(k, key) && (found == "" || k < found) {
			found = k
		}
	}
	return h[found]
}

// Set writes key in lower case, instead of what stands there in any case.
func (h HeaderCarrier) Set(key, value string) {
	for k := range h {
		if strings.EqualFold(k, key) {
			delete(h, k)
		}
	}
	h[strings.ToLower(key)] = []string{value}
}

// Keys is the names as they stand there, sorted.
func (h HeaderCarrier) Keys() []string { return slices.Sorted(maps.Keys(h)) }
