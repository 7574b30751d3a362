// Package wire is version 1 of what travels on the bus: subjects, headers, frames, records and their limits.
//
// Metadata travels in NATS headers; the payload is the arguments or the result and nothing else. So a bare NATS request
// to tb.v1.call.<tool> is a call, and a bare NATS replier is a worker. Structured records (heartbeats, turns, events)
// are MessagePack, and JSON is accepted wherever a person might type.
//
// Nothing here connects. Everything that decodes is bounded, refuses with an *Error that says what is wrong, and is
// fuzzed; the vectors in testdata are the same for every language.
package wire
