// Package kvstate is a bucket of keys on JetStream that several processes share: leader reads, compare-and-swap, and a
// feed that keeps a copy of the bucket in memory.
//
// The bucket is authoritative; every copy is a guess that is some milliseconds old. Of one key, the entry with the higher
// revision is the truth, and whatever carries a lower one is dropped: so the order in which feed, snapshots and one's
// own acknowledgements arrive does not matter.
//
//	Put, Create, Update, Delete ──►  $KV.<bucket>.<key>  (stream KV_<bucket>, file, history 1)
//	                                        │ RePublish, by the stream's leader, at most once
//	                                        ▼
//	Follow ◄── <prefix>.v1.kv.<bucket>.>    and a snapshot: at the start, on reconnect, on a gap, every 5 s
//
// That holds within one history, an era. Where the bucket was made anew, or put back to an older state, revisions begin
// again at lower numbers; Follow finds out within seconds, tells everything once more and counts a new era.
//
// KV.Watch is not used: it goes silent for 17 s when the server that hosts its consumer goes away, and for ever when the
// bucket is made anew. The feed has no consumer.
//
// What always holds: a write that succeeded is in the bucket at the revision it returned. What does not: a write that
// failed may be in the bucket all the same. After a partition two leaders may answer one publish, the refusal first; so
// ErrConflict, too, means "not known". Put something of your own into every value, look at what stands there, and let
// only a successful swap decide. Reads come from the leader, but a leader that was deposed and does not know it yet may
// answer one.
//
// When JetStream is away (4 to 15 s when its leader dies) every operation fails within 5 s, and Follow goes on trying.
// Nothing here belongs on the path of a call.
package kvstate
