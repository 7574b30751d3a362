package client

import (
	"slices"
	"sync"

	"github.com/toolbus/toolbus/bus"
)

// An inbox keeps the frames that came back for one ticket until they are taken.
type inbox struct {
	more chan struct{} // something has come

	maxFrames, maxBytes int

	mu      sync.Mutex
	frames  []bus.Frame
	bytes   int
	dropped bool // there were more than it keeps
}

// What is kept of a turn's events for a reader that does not keep up.
const (
	maxFrames = 4096
	maxBytes  = 32 << 20
)

// newInbox makes an inbox that holds as much and no more. Beyond that the oldest frames are dropped, so that the last
// one, which has the outcome, never is.
func newInbox(frames, bytes int) *inbox {
	return &inbox{more: make(chan struct{}, 1), maxFrames: frames, maxBytes: bytes}
}

// Receive is called by the connection's reader.
func (in *inbox) Receive(f bus.Frame) {
	in.mu.Lock()
	in.bytes += len(f.Data)
	old := 0
	for n := len(in.frames); old < n && (n-old >= in.maxFrames || in.bytes > in.maxBytes); old++ {
		in.bytes -= len(in.frames[old].Data)
	}
	if old > 0 {
		in.frames = slices.Delete(in.frames, 0, old)
		in.dropped = true
	}
	in.frames = append(in.frames, f)
	in.mu.Unlock()
	select {
	case in.more <- struct{}{}:
	default:
	}
}

// take is what has come since, and whether anything was dropped so far.
func (in *inbox) take() (fs []bus.Frame, dropped bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	fs = in.frames
	in.frames, in.bytes = nil, 0
	return fs, in.dropped
}
