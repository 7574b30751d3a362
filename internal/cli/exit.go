package cli

// The exit codes of the programs.
const (
	ExitOK          = 0
	ExitFailed      = 1   // it was tried, and the answer is no
	ExitUsage       = 2   // flags, arguments or configuration
	ExitUnavailable = 3   // NATS, or who should answer there, cannot be reached
	ExitInterrupted = 130 // a second Ctrl-C, as in shells
)
