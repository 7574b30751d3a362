// Package arch holds the drawing of the house (design §3) as a test: who may import whom, and what the cores must not
// do. It has no code of its own.
//
// The test parses the source tree in its own process. One that asked go list would be cached, and stay green after a
// forbidden import; the test cache sees the files that this one opens.
package arch
