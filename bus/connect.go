package bus

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/toolbus/toolbus/wire"
)

// Connect connects, or says what to do about it. The first connect is tried once per server, within cfg.Timeout and
// ctx; ctx has no part in what comes later. End the connection with Drain or Close.
//
// A user that may not receive replies (a worker of least privilege) is connected all the same; then requests are
// refused as Denied.
func Connect(ctx context.Context, cfg Config) (*Conn, error) {
	cfg, err := cfg.filled()
	if err != nil {
		return nil, err
	}
	subjects, err := wire.NewSubjects(cfg.Prefix)
	if err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	access, err := cfg.access()
	if err != nil {
		return nil, err
	}

	c := newConn(cfg, subjects)
	var settings natscontext.Settings
	c.nc, err = dial(ctx, cfg.Timeout, func() (nc *nats.Conn, err error) {
		opts := append(access, c.options(cfg)...)
		if cfg.Context != "" {
			nc, settings, err = natscontext.Connect(cfg.Context, opts...)
			return nc, err
		}
		return nats.Connect(cfg.URL, opts...)
	})
	if err != nil {
		return nil, cfg.explain(err)
	}
	if err := c.ready(settings); err != nil {
		c.nc.Close()
		return nil, fmt.Errorf("bus: connected to %s, then: %w", cfg.place(), err)
	}
	c.log.Debug("connected to NATS", "url", c.nc.ConnectedUrlRedacted(), "id", c.id)
	return c, nil
}

// dial runs connect until ctx or the time is over. A connection that comes after that is closed.
func dial(ctx context.Context, timeout time.Duration, connect func() (*nats.Conn, error)) (*nats.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	type dialled struct {
		nc  *nats.Conn
		err error
	}
	done := make(chan dialled)
	go func() {
		nc, err := connect()
		select {
		case done <- dialled{nc, err}:
		case <-ctx.Done():
			nc.Close() // nil is fine
		}
	}()
	select {
	case d := <-done:
		return d.nc, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// options are those of every connection (design §4). They come after a context's own.
func (c *Conn) options(cfg Config) []nats.Option {
	return []nats.Option{
		nats.Name(cfg.Name),
		nats.Timeout(cfg.Timeout),
		nats.RetryOnFailedConnect(false),
		nats.ReconnectBufSize(-1), // what is sent while disconnected fails now; it must not run later
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // refused credentials may be mended on the server
		nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 200*time.Millisecond),
		nats.PingInterval(2 * time.Second), // a half-open connection is found within 6 s
		nats.MaxPingsOutstanding(2),
		nats.PermissionErrOnSubscribe(true),
		nats.ErrorHandler(c.asyncError),
		nats.DisconnectErrHandler(c.disconnected),
		nats.ReconnectHandler(c.reconnected),
		nats.ClosedHandler(func(*nats.Conn) { close(c.closed) }),
		func(o *nats.Options) error {
			if cfg.InboxName != "" || o.InboxPrefix == "" {
				name := cfg.InboxName
				if name == "" {
					name = cfg.ID
				}
				o.InboxPrefix = "_INBOX_" + name
			}
			if cfg.URL != "" {
				o.Url, o.Servers = "", strings.Split(strings.ReplaceAll(cfg.URL, " ", ""), ",")
			}
			return nil
		},
	}
}

// ready does what comes once there is a connection: JetStream's address and the one subscription for replies.
func (c *Conn) ready(settings natscontext.Settings) (err error) {
	switch {
	case settings.JSDomain != "":
		c.api = "$JS." + settings.JSDomain + ".API."
		c.js, err = jetstream.NewWithDomain(c.nc, settings.JSDomain)
	case settings.JSAPIPrefix != "":
		c.api = strings.TrimSuffix(settings.JSAPIPrefix, ".") + "."
		c.js, err = jetstream.NewWithAPIPrefix(c.nc, settings.JSAPIPrefix)
	default:
		c.api = "$JS.API."
		c.js, err = jetstream.New(c.nc)
	}
	if err != nil {
		return fmt.Errorf("set up JetStream: %w", err)
	}

	root := strings.TrimSuffix(c.subjects.Blobs(), ".blob.>")
	c.replies = wire.NewReplyRule(c.subjects, root+".reply", root+".res", c.nc.Opts.InboxPrefix)

	_, err = c.subscribe(c.subjects.Replies(c.id), "", c.dispatch, 256<<20)
	if errors.Is(err, nats.ErrPermissionViolation) {
		c.mux.refused = err
		c.log.Debug("this user receives no replies, so it can send no requests", "error", err)
		return nil
	}
	return err
}

// explain says what kept us from connecting, and what to do.
func (cfg Config) explain(err error) error {
	err = unquoted(err)
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var record tls.RecordHeaderError
	var advice string
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("bus: connect to %s: %w", cfg.place(), err)
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired), errors.Is(err, nats.ErrNkeysNotSupported):
		advice = "the server refused the credentials; check --creds, --nkey, --user or the context, and the server's users"
	case errors.As(err, &authority):
		advice = "the server's certificate is by an authority that we do not know; pass --tls-ca"
	case errors.As(err, &hostname):
		advice = "the server's certificate is for another name; use that name in --nats-url"
	case errors.Is(err, nats.ErrSecureConnRequired), errors.As(err, &record), errors.Is(err, nats.ErrSecureConnWanted):
		advice = "one side wants TLS and the other does not; look at the scheme (nats:// or tls://) and --tls-ca"
	case errors.Is(err, nats.ErrMaxConnectionsExceeded), errors.Is(err, nats.ErrMaxAccountConnectionsExceeded):
		advice = "the server takes no more connections; raise its max_connections"
	case cfg.URL == "" && !errors.Is(err, nats.ErrNoServers):
		advice = "see \"nats context ls\" for the contexts that there are"
	default:
		advice = "no server answers there; start one with \"executor dev\", or pass --nats-url"
	}
	return fmt.Errorf("bus: cannot connect to NATS at %s (each server tried once, %v at most): %w: %s",
		cfg.place(), cfg.Timeout, err, advice)
}
