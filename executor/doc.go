// Package executor runs turns: it gives every call exactly one result, whatever breaks on the way.
//
//	         ┌──────────── turn (pure): what to do ◄────────────┐
//	 Go ──► run ──► job ──► breaker admits ──► dispatch ──► bus ──► worker
//	Call     │     of each                     picks one     │
//	         │      call    watch: is that worker still there?
//	         └──► journal, observers: what happened
//
// A run is one turn on its way, a job one of its calls, an attempt one try at it. None has a goroutine of its own: whoever
// brings an event (a frame from the bus, the run's timer, the caller, the watch) applies it under the run's lock, hands it
// to the turn and carries out the effects, in order. An effect that fails is an event too, whose effects come last in that
// order: so there is one path for failure, and no recursion. A call in flight costs two kilobytes and a half, and a hundred
// thousand of them are no trouble.
//
// Nothing here decides: what begins when is turn's, what a failure means is fault's, what to do about it is recovery's,
// when is retry's, whether a tool may be called at all is breaker's.
//
// Turns come from this process (Call, Go) or over the bus (Run). The outcome comes at the deadline at the latest; calls
// that still run go on, and what they come to is kept in the journal. Where there is no journal it is lost.
package executor
