// Package executor runs tool calls: it gives every call exactly one result, whatever breaks on the way.
//
//	         ┌────────────── turn (pure): what to do ◄──────────────┐
//	Call ──► run ──► breaker admits ──► dispatch picks ──► bus ──► worker
//	                                    a worker            │
//	         watch: is that worker still there? ────────────┘
//
// A run is one call on its way. It has no goroutine of its own: whoever brings an event (a frame from the bus, a timer,
// the caller, the watch) applies it under the run's lock, hands it to the turn and carries out the effects. An effect
// that fails comes back as an event, so there is one path for failure. So a call in flight costs about a kilobyte, and a
// hundred thousand of them are no trouble.
//
// Nothing here decides: what a failure means is fault's, what to do about it is recovery's, when is retry's, whether the
// tool may be called at all is breaker's.
package executor
