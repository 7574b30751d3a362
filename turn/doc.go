// Package turn is the life of a turn: calls out, their results back, and a deadline.
//
//	     New: the plan is checked             every call has its result, or the deadline
//	───────────────► Start ──────► open ─────────────────────────────────────────────────► ended ──────► over
//	                                │ ▲                                                      │ late results
//	                                └─┘ Step: what happened, in; what to do, out             └──────────────
//
// Each call goes its own way within it:
//
//	pending ──► ready ──► running ⇄ waiting ──► settled
//	  inputs      a place   an attempt   for the     with exactly one result
//	              is free   is out       next one
//
// A call that fails for good is recovery's to judge: it is sent again, to an alternative, or ends with its pieces, its
// default or its fault; then what depends on it gets the default, is skipped, or the turn escalates (seed 000 §5).
//
// Step is told what happened and when, and returns what to do. Nothing here waits, sends or looks at a clock. What
// happens is written into the journal, event by event (Effect Record), and Restore makes the same turn of those events.
//
// What always holds: one result for every call, in the order in which the calls were handed over; a call begins when the
// calls that it waits for have given what its join asks for, and none begins at the deadline or after it, however late Due
// comes; one attempt of a call is out at a time; an event that speaks of an attempt that was given up changes nothing; one
// Finish, after it nothing but stops and late results, and at the end of those one Over.
package turn
