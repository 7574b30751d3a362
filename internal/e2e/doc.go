// Package e2e tests the built programs as a new user starts them: as processes, with a real server between them, which
// are told to stop, killed and paused. It has tests only.
//
// The programs are built once per run. TOOLBUS_BIN names a folder that has them already.
package e2e
