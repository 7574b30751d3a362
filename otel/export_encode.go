package otel

import (
	"encoding/binary"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/trace"
	apitrace "go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
)

// The messages of opentelemetry/proto/trace/v1/trace.proto and common/v1/common.proto, field by field. Numbers are theirs.

func appendScope(b []byte, s instrumentation.Scope) []byte {
	if s == (instrumentation.Scope{}) {
		return b
	}
	b, at := open(b, 1)
	b = appendText(b, 1, s.Name)
	b = appendText(b, 2, s.Version)
	b = appendAttributes(b, 3, s.Attributes.ToSlice())
	return shut(b, at)
}

func appendSpan(b []byte, s trace.ReadOnlySpan) []byte {
	own, parent, status := s.SpanContext(), s.Parent(), s.Status()
	b, at := open(b, 2)
	b = appendIDs(b, own)
	b = appendText(b, 3, own.TraceState().String())
	if id := parent.SpanID(); id.IsValid() {
		b = appendBytes(b, 4, id[:])
	}
	b = appendText(b, 5, s.Name())
	b = appendInt(b, 6, uint64(kinds[s.SpanKind()]))
	b = appendTime(b, 7, s.StartTime())
	b = appendTime(b, 8, s.EndTime())
	b = appendAttributes(b, 9, s.Attributes())
	b = appendCount(b, 10, s.DroppedAttributes())
	for _, e := range s.Events() {
		b = appendEvent(b, e)
	}
	b = appendCount(b, 12, s.DroppedEvents())
	for _, l := range s.Links() {
		b = appendLink(b, l)
	}
	b = appendCount(b, 14, s.DroppedLinks())
	b = appendStatus(b, status)
	b = appendFlags(b, 16, own.TraceFlags(), parent)
	return shut(b, at)
}

var kinds = map[apitrace.SpanKind]tracepb.Span_SpanKind{
	apitrace.SpanKindInternal: tracepb.Span_SPAN_KIND_INTERNAL, apitrace.SpanKindServer: tracepb.Span_SPAN_KIND_SERVER,
	apitrace.SpanKindClient: tracepb.Span_SPAN_KIND_CLIENT, apitrace.SpanKindProducer: tracepb.Span_SPAN_KIND_PRODUCER,
	apitrace.SpanKindConsumer: tracepb.Span_SPAN_KIND_CONSUMER,
}

func appendEvent(b []byte, e trace.Event) []byte {
	b, at := open(b, 11)
	b = appendTime(b, 1, e.Time)
	b = appendText(b, 2, e.Name)
	b = appendAttributes(b, 3, e.Attributes)
	b = appendCount(b, 4, e.DroppedAttributeCount)
	return shut(b, at)
}

func appendLink(b []byte, l trace.Link) []byte {
	b, at := open(b, 13)
	b = appendIDs(b, l.SpanContext)
	b = appendText(b, 3, l.SpanContext.TraceState().String())
	b = appendAttributes(b, 4, l.Attributes)
	b = appendCount(b, 5, l.DroppedAttributeCount)
	b = appendFlags(b, 6, l.SpanContext.TraceFlags(), l.SpanContext)
	return shut(b, at)
}

func appendStatus(b []byte, s trace.Status) []byte {
	b, at := open(b, 15)
	b = appendText(b, 2, s.Description)
	switch s.Code {
	case codes.Ok:
		b = appendInt(b, 3, uint64(tracepb.Status_STATUS_CODE_OK))
	case codes.Error:
		b = appendInt(b, 3, uint64(tracepb.Status_STATUS_CODE_ERROR))
	}
	return shut(b, at)
}

// appendFlags appends the flags of W3C, and whether other comes from another process.
func appendFlags(b []byte, field protowire.Number, f apitrace.TraceFlags, other apitrace.SpanContext) []byte {
	flags := uint32(f) | uint32(tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK)
	if other.IsRemote() {
		flags |= uint32(tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
	}
	return protowire.AppendFixed32(protowire.AppendTag(b, field, protowire.Fixed32Type), flags)
}

func appendIDs(b []byte, s apitrace.SpanContext) []byte {
	t, id := s.TraceID(), s.SpanID()
	return appendBytes(appendBytes(b, 1, t[:]), 2, id[:])
}

func appendAttributes(b []byte, field protowire.Number, all []attribute.KeyValue) []byte {
	for i := range all {
		var at, value int
		b, at = open(b, field)
		b = appendText(b, 1, string(all[i].Key))
		b, value = open(b, 2)
		b = appendValue(b, all[i].Value)
		b = shut(shut(b, value), at)
	}
	return b
}

// appendValue appends the one field that an AnyValue has.
func appendValue(b []byte, v attribute.Value) []byte {
	switch v.Type() {
	case attribute.STRING:
		return appendString(b, 1, v.AsString())
	case attribute.BOOL:
		return protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), protowire.EncodeBool(v.AsBool()))
	case attribute.INT64:
		return protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), uint64(v.AsInt64()))
	case attribute.FLOAT64:
		return protowire.AppendFixed64(protowire.AppendTag(b, 4, protowire.Fixed64Type), math.Float64bits(v.AsFloat64()))
	case attribute.BOOLSLICE:
		return appendArray(b, v.AsBoolSlice(), attribute.BoolValue)
	case attribute.INT64SLICE:
		return appendArray(b, v.AsInt64Slice(), attribute.Int64Value)
	case attribute.FLOAT64SLICE:
		return appendArray(b, v.AsFloat64Slice(), attribute.Float64Value)
	case attribute.STRINGSLICE:
		return appendArray(b, v.AsStringSlice(), attribute.StringValue)
	case attribute.SLICE:
		return appendArray(b, v.AsSlice(), func(v attribute.Value) attribute.Value { return v })
	case attribute.MAP:
		b, at := open(b, 6)
		return shut(appendAttributes(b, 1, v.AsMap()), at)
	case attribute.BYTESLICE:
		return protowire.AppendBytes(protowire.AppendTag(b, 7, protowire.BytesType), v.AsByteSlice())
	}
	return b
}

func appendArray[T any](b []byte, all []T, of func(T) attribute.Value) []byte {
	b, at := open(b, 5)
	for _, v := range all {
		var one int
		b, one = open(b, 1)
		b = shut(appendValue(b, of(v)), one)
	}
	return shut(b, at)
}

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

// appendText leaves out what is empty, as proto3 does.
func appendText(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return appendString(b, field, s)
}

// appendString makes what it appends valid: one wrong byte would have a collector refuse the whole batch.
func appendString(b []byte, field protowire.Number, s string) []byte {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func appendInt(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendCount(b []byte, field protowire.Number, n int) []byte {
	if n <= 0 {
		return b
	}
	return appendInt(b, field, min(uint64(n), math.MaxUint32))
}

func appendTime(b []byte, field protowire.Number, t time.Time) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), uint64(max(0, t.UnixNano())))
}

// open begins a message within a message; shut ends it, and writes its length where there is room for a short one. A longer
// one makes what it has move on.
func open(b []byte, field protowire.Number) ([]byte, int) {
	b = append(protowire.AppendTag(b, field, protowire.BytesType), 0)
	return b, len(b)
}

func shut(b []byte, at int) []byte {
	n := uint64(len(b) - at)
	if more := protowire.SizeVarint(n) - 1; more > 0 {
		var room [binary.MaxVarintLen64]byte
		b = append(b, room[:more]...)
		copy(b[at+more:], b[at:])
	}
	binary.PutUvarint(b[at-1:], n)
	return b
}
