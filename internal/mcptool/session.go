package mcptool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// legacy is the last revision that begins with initialize. A server that is silent when it is asked for a newer one is
// asked for this.
const legacy = "2025-11-25"

// A session is one connection with the server.
type session struct {
	mcp   *mcp.ClientSession
	pipe  *pipe         // nil over HTTP
	ended chan struct{} // closed when the server hung up, or we did
	err   error         // why; read it after ended
	ctx   context.Context
	over  context.CancelCauseFunc // ends ctx, and with it the session's calls
}

// connect starts or reaches the server, asks for its tools and has it take calls.
func (b *Bridge) connect(ctx context.Context) (*session, error) {
	s, err := b.handshake(ctx, "")
	if err != nil && errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		b.log.Warn("the server did not answer; asking for an older revision", "revision", legacy)
		s, err = b.handshake(ctx, legacy)
	}
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, b.cfg.StartTimeout)
	defer cancel()
	if err := b.list(limited, s); err != nil {
		s.close(b.cfg.Grace)
		return nil, b.advise(err)
	}
	b.mu.Lock()
	b.session = s
	b.turn()
	b.mu.Unlock()
	return s, nil
}

func (b *Bridge) handshake(ctx context.Context, revision string) (*session, error) {
	limited, cancel := context.WithTimeout(ctx, b.cfg.StartTimeout)
	defer cancel()
	transport, p, err := b.transport()
	if err != nil {
		return nil, err
	}
	client, err := b.client.Connect(limited, transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
		}
		if p != nil {
			p.end(b.cfg.Grace)
			err = p.explain(err)
		}
		return nil, b.advise(err)
	}
	s := &session{mcp: client, pipe: p, ended: make(chan struct{})}
	s.ctx, s.over = context.WithCancelCause(context.WithoutCancel(ctx))
	go func() {
		defer close(s.ended)
		s.err = client.Wait()
		s.over(errHungUp)
	}()
	info := client.InitializeResult()
	b.log.Debug("connected", "revision", info.ProtocolVersion)
	return s, nil
}

var errHungUp = errors.New("the MCP server ended the session")

// transport is a way to the server; for a program it is already running.
func (b *Bridge) transport() (mcp.Transport, *pipe, error) {
	if b.cfg.URL != "" {
		return b.web(), nil, nil
	}
	p, err := startPipe(&b.cfg, b.log)
	if err != nil {
		return nil, nil, err
	}
	return p, p, nil
}

// advise adds what to do to why a server could not be used.
func (b *Bridge) advise(err error) error {
	switch {
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	case b.cfg.URL != "":
		return fmt.Errorf("it did not say within %v what it offers; is there an MCP endpoint at this URL? A longer start timeout may help: %w", b.cfg.StartTimeout, err)
	}
	return fmt.Errorf("it did not say within %v what it offers; is it an MCP server that speaks over stdio? "+
		"Run the command by hand: it must wait for input and print nothing but JSON to stdout. "+
		"Where it is installed first, as by npx, give it a longer start timeout: %w", b.cfg.StartTimeout, err)
}

// keep sees to it that there is a session until ctx ends.
func (b *Bridge) keep(ctx context.Context, s *session) {
	wait := firstWait
	for {
		began := time.Now()
		b.watch(ctx, s)
		b.lost(s.reason(), wait)
		s.close(b.cfg.Grace)
		if time.Since(began) >= healthy {
			wait = firstWait
		}
		for s = nil; s == nil; {
			if !pause(ctx, wait) {
				return
			}
			wait = min(2*wait, longestWait)
			var err error
			if s, err = b.connect(ctx); err != nil && ctx.Err() == nil {
				b.lost(err.Error(), wait)
			}
		}
		b.log.Info("the server is back")
	}
}

// lost says that the server is away.
func (b *Bridge) lost(why string, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.session, b.away, b.next = nil, clip(why), time.Now().Add(wait)
	b.turn()
	if why == errClosed.Error() {
		return // as was wished
	}
	b.log.Warn("the server is away", "why", b.away, "again_in", wait)
}

// watch returns when the session has ended or ctx has. Until then it asks for the tools whenever they are others.
func (b *Bridge) watch(ctx context.Context, s *session) {
	for {
		select {
		case <-ctx.Done():
			s.over(context.Cause(ctx))
			return
		case <-s.ended:
			return
		case <-b.relist:
		}
		limited, cancel := context.WithTimeout(ctx, b.cfg.StartTimeout)
		if err := b.list(limited, s); err != nil && ctx.Err() == nil {
			b.log.Warn("the server changed its tools and does not say to which", "error", err)
		}
		cancel()
	}
}

func (s *session) reason() string {
	select {
	case <-s.ended:
	default:
		return errClosed.Error()
	}
	if s.pipe != nil {
		return s.pipe.explain(errHungUp).Error()
	}
	if s.err != nil {
		return s.err.Error()
	}
	return errHungUp.Error()
}

// close ends the session, and the program. The SDK waits for calls that run, so these are told to end first, and it gets
// no more than closeTime.
func (s *session) close(grace time.Duration) {
	s.over(errClosed)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = s.mcp.Close()
	}()
	if s.pipe != nil {
		s.pipe.end(grace)
	}
	pause, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	select {
	case <-closed:
	case <-pause.Done():
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
