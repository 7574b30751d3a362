package mcptool

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxMessage bounds one message of a server, in bytes: as large as a result may be on the bus.
const maxMessage = 64 << 20

// stall is how long a program may leave its input unread while somebody waits to write.
const stall = 10 * time.Second

// errBroken is what a pipe says when its other end is gone.
var errBroken = errors.New("the program's pipes are broken")

// A pipe is a program that speaks MCP over its standard input and output: the transport of the SDK and its connection in
// one. Unlike the SDK's own it passes over lines that are no messages, so that a greeting or a stray print does no harm.
type pipe struct {
	*process
	in    *os.File // the program's stdin
	out   *os.File // its stdout
	lines *bufio.Reader
	log   *lineLog // of what it prints that is not MCP
	queue []jsonrpc.Message

	writing chan struct{} // holds who writes
	once    sync.Once
}

var _ interface {
	mcp.Transport
	mcp.Connection
} = (*pipe)(nil)

func startPipe(cfg *Config, log *slog.Logger) (*pipe, error) {
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, inRead.Close(), inWrite.Close())
	}
	proc, err := startProcess(cfg, log, inRead, outWrite)
	inRead.Close()
	outWrite.Close()
	if err != nil {
		return nil, errors.Join(err, inWrite.Close(), outRead.Close())
	}
	p := &pipe{
		process: proc,
		in:      inWrite,
		out:     outRead,
		lines:   bufio.NewReaderSize(outRead, 64<<10),
		log:     newLineLog(log, "the server printed what is not MCP"),
		writing: make(chan struct{}, 1),
	}
	go func() {
		<-proc.ended
		_ = outRead.SetReadDeadline(time.Now().Add(pipeWait)) // only somebody who left the group can still hold it
	}()
	return p, nil
}

// Connect gives the pipe itself.
func (p *pipe) Connect(context.Context) (mcp.Connection, error) { return p, nil }

// SessionID is empty: a pipe is its own session.
func (p *pipe) SessionID() string { return "" }

// Read is the next message. It is called from one goroutine, and ends when the program's output does.
func (p *pipe) Read(context.Context) (jsonrpc.Message, error) {
	for len(p.queue) == 0 {
		line, err := p.line()
		if p.queue = parse(line); len(p.queue) == 0 && len(line) > 0 {
			p.log.Write(append(line, '\n'))
		}
		if err != nil && len(p.queue) == 0 {
			return nil, fmt.Errorf("%w: %w", errBroken, err)
		}
	}
	m := p.queue[0]
	p.queue = p.queue[1:]
	return m, nil
}

// line is the next line without its end and without blanks around it. One that is too long is passed over.
func (p *pipe) line() ([]byte, error) {
	var line []byte
	long := false
	for {
		piece, err := p.lines.ReadSlice('\n')
		if long = long || len(line)+len(piece) > maxMessage; long {
			line = nil
		} else {
			line = append(line, piece...)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if long {
			line = fmt.Appendf(nil, "(a line of more than %d bytes)", maxMessage)
		}
		return bytes.TrimSpace(line), err
	}
}

// parse is the messages of a line: one, several where it is a batch as in the revision of 2025-03-26, or none.
func parse(line []byte) []jsonrpc.Message {
	if len(line) == 0 {
		return nil
	}
	raws := []json.RawMessage{line}
	switch line[0] {
	case '{':
	case '[':
		if json.Unmarshal(line, &raws) != nil {
			return nil
		}
	default:
		return nil
	}
	var messages []jsonrpc.Message
	for _, raw := range raws {
		m, err := jsonrpc.DecodeMessage(raw)
		if err != nil {
			return nil
		}
		messages = append(messages, m)
	}
	return messages
}

// Write sends a message. One that fails was not read as a whole, so it did not come.
func (p *pipe) Write(ctx context.Context, m jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	select {
	case p.writing <- struct{}{}:
		defer func() { <-p.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := p.in.SetWriteDeadline(time.Now().Add(stall)); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	if _, err := p.in.Write(append(data, '\n')); err != nil {
		p.in.Close() // half a message may be there: nothing can follow it
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("it read nothing for %v", stall)
			p.kill()
		}
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	if f := flightOf(ctx); f != nil {
		f.sent.Store(true)
	}
	return nil
}

// Close closes the program's input, which is how it is asked to end, and reads no more of its output.
func (p *pipe) Close() error {
	p.once.Do(func() {
		p.in.Close()
		_ = p.out.SetReadDeadline(time.Now())
	})
	return nil
}

// end has the program end, politely first, and returns when it and its group are gone.
func (p *pipe) end(grace time.Duration) {
	p.Close()
	p.process.end(grace)
	p.out.Close()
}

// explain adds to an error how the program ended and what it said last, where that is why.
func (p *pipe) explain(err error) error {
	why := p.obituary()
	switch {
	case why == "":
		return err
	case errors.Is(err, errHungUp):
		return errors.New(why)
	}
	return fmt.Errorf("%s: %w", why, err)
}

// obituary is how the program ended, or empty where it has not. A pipe breaks a moment before the program is collected.
func (p *pipe) obituary() string {
	select {
	case <-p.ended:
	case <-time.After(pipeWait):
		return ""
	}
	why := "the program ended (" + p.state() + ")"
	if said := p.tail.last(); said != "" {
		why += "; it said last: " + said
	}
	return why
}
