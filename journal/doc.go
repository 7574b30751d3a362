// Package journal keeps the events of turns, and the results that came after their turn had ended, on JetStream.
//
//	Write(event) ──► a page per turn ──► tb.v1.log.<turn>           (stream TB_LOG)   ──► Trace
//	                 every 20 ms,        published, no answer awaited
//	                 and at its end
//	Keep(result) ──────────────────────► tb.v1.late.<turn>.<call>   (stream TB_LATE)  ──► Late
//	                                     published, its answer awaited
//
// The journal of a turn is what its executor saw, for whoever wants to know afterwards: nothing is decided from it. So
// writing never waits, and may lose: what JetStream does not take while it is away, what came faster than it could be
// sent (see Journal.Dropped), what an executor that was killed had gathered. A loss shows as a gap in Event.Seq. A late
// result is the only copy of something that a tool did, so keeping one waits for JetStream.
//
// What always holds: the events of one turn that are written one after the other are read in that order. Streams that
// stand are never changed. Arguments, values and pieces are in no journal unless Config.Content is set; what a fault says
// is in it, and may quote a few words of them. Late results have their value, for that is what they are kept for.
//
// Reading uses direct gets only: no consumer, no permission to make one. At more than one replica any of them answers, so
// what was written a moment ago may not be there yet.
//
// When JetStream is away Write goes on, Late and Trace say that they are unavailable, and Keep tries again.
package journal
