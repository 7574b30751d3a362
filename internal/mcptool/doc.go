// Package mcptool makes tools of what an MCP server offers: one that is a program, spoken to over its standard input and
// output, or one that is reached by streamable HTTP.
//
//	call ──► Bridge ──► tools/call ──► MCP server
//	            ▲                          │
//	            └── result, progress ◄─────┘
//
// The server says what tools there are; the bridge gives each a manifest and a name that the bus allows, and says on
// Changed when the list is another one. It speaks the revisions of MCP that its SDK speaks, the newest that the server
// knows.
//
// What always holds:
//
//   - A call is sent to the server once. Where its answer is lost its run is unknown, and only the executor, which knows
//     the tool's effect, may send it again.
//   - A call that comes while the server is away is refused at once, as one that did not run.
//   - A cancel is passed on as a wish. MCP has no word for "it stopped", so the run is unknown from then on.
//   - What the server says is bounded: the size of a message, the lines that reach our log, the number of tools.
//
// A server that ends or hangs up is started again, after a wait that doubles from a quarter of a second to half a minute.
// A program and all that it starts are one process group, which is killed when the bridge is closed; on Linux the program
// also dies with a worker that is killed.
package mcptool
