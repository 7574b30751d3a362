// Package cli is what the programs executor and toolworker share on the command line: how NATS is reached, logs, signals,
// exit codes, the version, and JSON for scripts.
//
// A setting is taken from the first of these that says something: a flag, the environment (TOOLBUS_*), a configuration
// file, the default. A file is read into a Config by the program that has one; NATSFlags.Over does the rest.
package cli
