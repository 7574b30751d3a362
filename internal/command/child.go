package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// maxExcerpt bounds what is shown of a line that says nothing, in bytes.
const maxExcerpt = 120

// A child is one program that answers lines.
type child struct {
	proc     *process
	stdin    *os.File // ours; closed when the program has ended
	theirs   *os.File
	err      error // of making the pipe
	log      *slog.Logger
	answered atomic.Bool
	pen      chan struct{} // holds one token: who has it writes

	bad     chan struct{} // closed when the program is to be killed
	badOnce sync.Once
	why     string // read it after bad

	mu   sync.Mutex
	jobs map[string]*job
	lost string // why nobody will answer any more

	line []byte // so far; only Write touches it
	max  int64
}

// A job is one call that a program has.
type job struct {
	id     string
	call   *worker.Call
	answer chan answer // holds one
}

// An answer ends a job.
type answer struct {
	result json.RawMessage
	fault  *fault.Fault
	lost   bool // nobody answered
}

func (a answer) value() (any, error) {
	if a.fault != nil {
		return nil, a.fault
	}
	return a.result, nil
}

func newChild(p *Pool) *child {
	c := &child{
		log: p.log, pen: make(chan struct{}, 1), bad: make(chan struct{}), jobs: map[string]*job{},
		max: positive(p.cfg.MaxOutput, defaultMaxOutput),
	}
	c.pen <- struct{}{}
	c.proc = newProcess(p.cfg.Command, nil, nil, func(wire.ProgressRecord) {}) // progress comes in lines here
	c.theirs, c.stdin, c.err = os.Pipe()
	c.proc.enough = c.bad
	c.proc.cmd.Stdin = c.theirs
	c.proc.cmd.Stdout = c
	c.proc.cmd.Stderr = &speech{to: c.proc.stderr, log: p.log}
	return c
}

// run starts the program and returns when it is gone, with why.
func (c *child) run(ctx context.Context) (why string) {
	if c.err != nil {
		return c.err.Error()
	}
	defer c.stdin.Close()
	defer c.theirs.Close()
	_, err := c.proc.run(ctx)
	if err != nil {
		return fmt.Sprintf("it cannot be started: %v", notRunnable(err))
	}
	select {
	case <-c.bad:
		return c.why
	default:
	}
	why = "it ended with exit code " + fmt.Sprint(c.proc.cmd.ProcessState.ExitCode())
	if sig, ok := signalOf(c.proc.cmd); ok {
		why = "it was killed by " + signalName(sig)
	}
	if line, _ := lastLine(c.proc.stderr.tail); line != "" {
		why += ": " + fault.Truncate(line, maxMessage)
	}
	return why
}

// kill ends the program, for a reason that calls will hear.
func (c *child) kill(why string) {
	c.badOnce.Do(func() {
		c.why = why
		close(c.bad)
	})
}

func (c *child) load() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.jobs)
}

// take makes a job of a call.
func (c *child) take(id string, call *worker.Call) *job {
	j := &job{id: id, call: call, answer: make(chan answer, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs[id] = j
	if c.lost != "" {
		j.answer <- lostAnswer(c.lost)
	}
	return j
}

func (c *child) drop(j *job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.jobs, j.id)
}

// lose answers all jobs that are left, when the program is gone.
func (c *child) lose(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = why
	for _, j := range c.jobs {
		j.end(lostAnswer(why))
	}
}

func lostAnswer(why string) answer {
	f := fault.New(fault.WorkerLost, "the command ended while it had the call: %s", why)
	f.Execution = fault.Unknown
	return answer{fault: f, lost: true}
}

// end is the answer to a job, unless it has one.
func (j *job) end(a answer) {
	select {
	case j.answer <- a:
	default:
	}
}

// send writes a line, within ctx. A program that got a part of one can make nothing of what follows, so it is ended.
func (c *child) send(ctx context.Context, line []byte) *fault.Fault {
	select {
	case <-c.pen:
	case <-ctx.Done():
		f := ended(ctx, "before the command had read the call")
		f.Execution = fault.NotStarted
		return f
	}
	defer func() { c.pen <- struct{}{} }()
	_ = c.stdin.SetWriteDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = c.stdin.SetWriteDeadline(time.Now()) })
	n, err := c.stdin.Write(line)
	if !stop() {
		_ = c.stdin.SetWriteDeadline(time.Time{})
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		f := ended(ctx, "before the command had read the call")
		f.Execution = fault.NotStarted
		if n > 0 {
			c.kill("it did not read")
		}
		return f
	}
	f := notStarted(fault.Unavailable, "the command does not take calls any more")
	f.RetryAfterMs = firstWait.Milliseconds()
	return f
}

// Write takes what the program writes to standard output. It is called by one goroutine.
func (c *child) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			i = len(b) - 1
		}
		piece := b[:i+1]
		b = b[i+1:]
		if c.isBad() {
			continue // read on, so that it is not stuck while it is killed
		}
		if int64(len(c.line)+len(piece)) > c.max {
			c.refuse(fmt.Sprintf("a line of more than %d bytes", c.max), c.line)
			c.line = nil
			continue
		}
		c.line = append(c.line, piece...)
		if piece[len(piece)-1] == '\n' {
			c.answerLine(bytes.TrimSpace(c.line))
			c.line = c.line[:0]
			if cap(c.line) > 1<<20 {
				c.line = nil
			}
		}
	}
	return n, nil
}

func (c *child) isBad() bool {
	select {
	case <-c.bad:
		return true
	default:
		return false
	}
}

// A reply is a line of the program.
type reply struct {
	ID       string               `json:"id"`
	Result   json.RawMessage      `json:"result"`
	Error    json.RawMessage      `json:"error"`
	Progress *wire.ProgressRecord `json:"progress"`
}

// answerLine deals with one line. One for a call that is over is dropped: the answer and a cancel may cross.
func (c *child) answerLine(line []byte) {
	if len(line) == 0 {
		return
	}
	var r reply
	if json.Unmarshal(line, &r) != nil || r.ID == "" {
		c.refuse("a line that is no answer", line)
		return
	}
	c.mu.Lock()
	j := c.jobs[r.ID]
	c.mu.Unlock()
	switch {
	case r.Error != nil && string(r.Error) != "null":
		c.end(j, answer{fault: errorOf(r.Error)})
	case r.Result != nil:
		c.end(j, answer{result: bytes.Clone(r.Result)})
	case r.Progress != nil:
		if j != nil && r.Progress.Done >= 0 && r.Progress.Total >= 0 {
			message := fault.Truncate(strings.ToValidUTF8(r.Progress.Message, "\uFFFD"), maxMessage)
			j.call.Progress(r.Progress.Done, r.Progress.Total, message)
		}
	default:
		c.refuse("a line without result, error or progress", line)
	}
}

func (c *child) end(j *job, a answer) {
	c.answered.Store(true)
	if j != nil {
		j.end(a)
	}
}

// refuse ends a program that does not keep to the lines. The calls that it has hear what it said instead.
func (c *child) refuse(what string, line []byte) {
	shown := fault.Truncate(strings.ToValidUTF8(string(line[:min(len(line), 4*maxExcerpt)]), "\uFFFD"), maxExcerpt)
	why := fmt.Sprintf("it wrote %s to standard output: %q", what, shown)
	c.log.Error("a program does not keep to the lines and is killed; what is no answer belongs on standard error", "wrote", shown)
	c.mu.Lock()
	for _, j := range c.jobs {
		f := fault.New(fault.InvalidResult, "the command must answer with one JSON line, but %s", why)
		f.Execution = fault.Unknown
		j.end(answer{fault: f})
	}
	c.mu.Unlock()
	c.kill(why)
}

// errorOf is the fault that a program reports: a fault record, or just a text.
func errorOf(raw json.RawMessage) *fault.Fault {
	if f, _, ok := record(bytes.ReplaceAll(raw, []byte("\n"), []byte(" "))); ok {
		return f
	}
	var r struct {
		Message string `json:"message"`
	}
	text := ""
	if json.Unmarshal(raw, &text) != nil {
		_ = json.Unmarshal(raw, &r)
		text = r.Message
	}
	if text == "" {
		text = "the command reported an error without a message: " + fault.Truncate(string(raw), maxExcerpt)
	}
	f := fault.New(fault.Failed, "%s", fault.Truncate(text, maxDetail))
	f.Execution = fault.Done
	return f
}
