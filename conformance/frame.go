package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/wire"
)

// none is the frame that the server itself sends where nobody listens.
const none wire.Frame = "none"

// maxFrames bounds what one inbox keeps; a worker that says more has failed already.
const maxFrames = 100_000

// A frame is one message that came.
type frame struct {
	kind   wire.Frame // result where the message says nothing
	header wire.Header
	data   []byte
	at     time.Time
}

func newFrame(m *nats.Msg) frame {
	f := frame{wire.FrameOf(m.Header), wire.Header(m.Header), m.Data, time.Now()}
	switch {
	case len(m.Data) == 0 && m.Header.Get("Status") == "503":
		f.kind = none
	case f.kind == "":
		f.kind = wire.Result
	}
	return f
}

func (f frame) ends() bool { return f.kind == none || f.kind.Ends() }

// value is the payload as JSON would have it. The records of the protocol are read as their readers read them, so it does
// not matter in which codec they came.
func (f frame) value() (any, error) {
	var record any
	switch f.kind {
	case wire.ErrorFrame, wire.Nack, wire.Stopped:
		record = wire.DecodeFault(f.header, f.data)
	case wire.Progress:
		record = &wire.ProgressRecord{}
	case wire.Manifests:
		record = &wire.DescribeRecord{}
	default:
		if len(f.data) == 0 {
			return absent{}, nil
		}
		return decode(f.data)
	}
	if f.kind == wire.Progress || f.kind == wire.Manifests {
		if err := wire.Decode(f.data, record); err != nil {
			return nil, err
		}
	}
	return asValue(record)
}

func asValue(record any) (any, error) {
	data, err := json.Marshal(record)
	if err != nil {
		return nil, err
	}
	return decode(data)
}

func (f frame) String() string {
	var b strings.Builder
	b.WriteString(string(f.kind))
	for _, name := range slices.Sorted(maps.Keys(f.header)) {
		if !strings.EqualFold(name, wire.HeaderFrame) {
			fmt.Fprintf(&b, " %s=%s", name, short(strings.Join(f.header[name], ",")))
		}
	}
	if v, err := f.value(); err != nil {
		fmt.Fprintf(&b, " %q", short(string(f.data)))
	} else if _, missing := v.(absent); !missing {
		b.WriteString(" " + show(v))
	}
	return b.String()
}

// An inbox keeps what comes to one subject.
type inbox struct {
	name, subject string
	ref           string    // of the call whose frames come here; empty for others
	call          bool      // a call, which must end
	sent          time.Time // the question

	mu      sync.Mutex
	frames  []frame
	read    int
	settled int // frames at the end of the case
	news    chan struct{}
}

func newInbox(name, subject string) *inbox {
	return &inbox{name: name, subject: subject, sent: time.Now(), news: make(chan struct{}, 1)}
}

func (b *inbox) put(m *nats.Msg) {
	b.mu.Lock()
	if len(b.frames) < maxFrames {
		b.frames = append(b.frames, newFrame(m))
	}
	b.mu.Unlock()
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// next waits for a frame, and takes it unless peek.
func (b *inbox) next(d time.Duration, peek bool) (frame, bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		b.mu.Lock()
		if b.read < len(b.frames) {
			f := b.frames[b.read]
			if !peek {
				b.read++
			}
			b.mu.Unlock()
			return f, true
		}
		b.mu.Unlock()
		if d <= 0 {
			return frame{}, false
		}
		select {
		case <-b.news:
		case <-timer.C:
			return frame{}, false
		}
	}
}

// wrong is what breaks the rules that hold for every call, in words. The worker is empty where it is not known.
func (b *inbox) wrong(worker string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	say := func(format string, args ...any) { all = append(all, b.name+": "+fmt.Sprintf(format, args...)) }
	ended, accepts, seq := "", 0, 0
	for _, f := range b.frames {
		if ended != "" {
			say("after its end (%s) came %s", ended, f)
		}
		if v := wire.Get(f.header, wire.HeaderCall); v != "" && v != b.ref {
			say("a frame names the call %q, and this is %q: %s", v, b.ref, f)
		}
		if v := wire.Get(f.header, wire.HeaderWorker); v != "" && worker != "" && v != worker {
			say("a frame names the worker %q, and this is %q: %s", v, worker, f)
		}
		switch f.kind {
		case wire.Accept:
			if accepts++; accepts > 1 {
				say("accepted twice")
			}
		case wire.Partial:
			if seq++; wire.Get(f.header, wire.HeaderSeq) != fmt.Sprint(seq) {
				say("piece %d has Tb-Seq %q", seq, wire.Get(f.header, wire.HeaderSeq))
			}
		}
		if b.call && f.ends() && ended == "" {
			ended = string(f.kind)
		}
	}
	return all
}

// ended says whether an end came.
func (b *inbox) ended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.frames, frame.ends)
}

// unread are the frames that no step took.
func (b *inbox) unread() []frame {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.frames[b.read:])
}

func (b *inbox) settle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settled = len(b.frames)
}

// late are the frames that came when the case was over.
func (b *inbox) late() []frame {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.frames[b.settled:])
}
