// Package registry folds heartbeats and manifests into one catalogue: which tools there are, what each declares about
// itself, and which workers take its calls now.
//
//	heartbeat ──►  catalogue  ──►  one immutable Tool per name, read without a lock
//	                │      ▲
//	  digest that   │      │ manifest
//	  nobody knows  ▼      │
//	            Describe, asked of the worker itself; kept in the store, so that a restart knows it
//
// Workers are authoritative for what they run: nothing is registered, nothing must be taken out. A worker is live from
// its first heartbeat to its bye, to the third beat that it misses, or until a caller finds nobody on its subject (Gone);
// from there to its next beat it takes no calls. The catalogue of each executor is its own; they agree because they
// hear the same heartbeats.
//
// A tool is known as long as a manifest of it is: in the catalogue, or in the store. A tool with a manifest and no
// workers is a tool that is away (unavailable); one that is not in the catalogue was never heard of (tool_not_found).
//
// Where live workers announce different manifests for one tool, one holds: the highest version, then the one that most
// workers run, then the smaller digest. All of the workers go on taking calls, and the other manifests are shown as
// conflicts with who runs them. A manifest that nobody has yet is never preferred to one that is there.
//
// Heartbeats come from the network: what is malformed, too large, old or speaks for another worker is dropped, and the
// numbers of workers, tools and manifests are bounded.
package registry
