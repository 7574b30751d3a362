// Package conformance plays transcripts to a worker in any language and says what it does not do as docs/protocol.md says.
//
//	*.txtar ──► cases ──► lanes ──► worker (a process of its own)
//	                       │  ▲        │
//	              NATS ────┘  └──link──┘   what comes from it, and only from it
//
// A case is some steps in the language of README.md. Cases that do not care share one worker; a case that kills, drains
// or cuts off its worker gets a fresh one. A lane is a server and one worker at a time; lanes go side by side.
//
// The worker reaches its server through a link, a small TCP relay of ours. It sees every subject to which the worker
// publishes, can be taken down in mid-call, and in the tests of this package it breaks workers on purpose.
//
// What always holds is checked in every case, whatever its steps say: a call has exactly one end, nothing follows it,
// frames speak of their own call, and nothing comes that no step expected.
//
// Random is the other way to ask: a seeded list of actions against the same worker, with only what always holds as the
// expectation.
package conformance
