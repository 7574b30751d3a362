// Package bus is the one way to NATS: a connection, requests that may be answered more than once, claim checks for what
// is too large for a message, and an embedded server. nats.go stops here: its errors leave as faults (see Fault).
//
//	Open(tool, sink) ──► Ticket ──Send──► tb.v1.call.<tool> ──► worker
//	                       │                                      │
//	sink.Receive(Frame) ◄──┴── mux ◄── tb.v1.reply.<tool>.<id>.<n> ◄┘   any number of frames, until Close
//
// The mux is one wildcard subscription for all requests of a connection (design §4): opening a ticket subscribes
// nothing. Frames come one at a time, on one goroutine, so a Sink must not block.
//
// What always holds:
//
//   - A message that Send, Publish or Respond returned a fault for was not sent, and nothing is kept back to be sent
//     after a reconnect.
//   - Through these methods nothing goes out with a header that speaks to the server (Nats-Rollup), a subject that could
//     close the shared connection, or a line break in a header value; no frame that comes in brings such a header.
//   - A worker can answer only as the tool that was asked: see Ticket and Conn.Strays.
//
// When the connection is lost it is sought again for ever, every 100 ms and a bit; meanwhile sending fails at once.
// Frames that were on their way are lost; whoever waits must have a timeout. Subscriptions and tickets outlive it.
// When the server refuses a subject, it says so late: a ticket gets a frame that tells (Frame.Refused), the rest is for
// Conn.PermissionError.
package bus
