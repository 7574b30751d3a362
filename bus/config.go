package bus

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// DefaultURL is where Connect looks for a server that nobody named.
const DefaultURL = "nats://127.0.0.1:4222"

// A Config says how to reach NATS. The zero value connects to nats://127.0.0.1:4222 without credentials.
type Config struct {
	// Server connects in process to an embedded server; then URL, Context and credentials are not looked at.
	Server *Server

	URL     string // comma-separated; empty means nats://127.0.0.1:4222
	Context string // a context of the nats CLI, read from its usual place; "" means none. What is set here goes before it

	Creds     string // path of a .creds file
	NKey      string // path of a file with an nkey seed
	User      string
	Password  string
	Token     string
	TLSCA     string // path of a PEM bundle
	TLSCert   string // path, with TLSKey, for mutual TLS
	TLSKey    string
	TLSFirst  bool          // TLS handshake before the server's INFO
	Timeout   time.Duration // of the first connect; 0 means 5 s
	Name      string        // what the server shows for this connection
	Prefix    string        // of subjects; "" means tb
	ID        string        // this executor's, worker's or client's instance id; "" means a random one
	InboxName string        // private inbox prefix _INBOX_<name>; "" means the User, or the ID where there is none
	Logger    *slog.Logger  // nil discards

	// Replicas of the streams that EnsureTopology creates. 0 means 3 where the server is part of a cluster, else 1.
	Replicas int
}

// filled is cfg with its defaults in place, or what is wrong with it.
func (cfg Config) filled() (Config, error) {
	if cfg.ID == "" {
		cfg.ID = rand.Text()
	}
	if err := tool.CheckID(cfg.ID); err != nil {
		return cfg, fmt.Errorf("bus: instance id: %w", err)
	}
	if cfg.InboxName == "" && cfg.Server == nil && tool.CheckID(cfg.User) == nil {
		cfg.InboxName = cfg.User // so that permissions can be written for a user whose processes have random ids
	}
	if cfg.InboxName != "" {
		if err := tool.CheckID(cfg.InboxName); err != nil {
			return cfg, fmt.Errorf("bus: inbox name: %w", err)
		}
	}
	if cfg.Replicas < 0 || cfg.Replicas > 5 {
		return cfg, fmt.Errorf("bus: replicas = %d: expected 0 to 5", cfg.Replicas)
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 5 * time.Second
	}
	if cfg.Name == "" {
		cfg.Name = "toolbus " + cfg.ID
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case cfg.Server != nil:
		cfg.URL, cfg.Context = "", ""
	case cfg.URL == "" && cfg.Context == "":
		cfg.URL = DefaultURL
	}
	return cfg, nil
}

// Check says what Connect would refuse without asking anybody, such as a URL that is none or a file that is not there.
func (cfg Config) Check() error {
	cfg, err := cfg.filled()
	if err != nil {
		return err
	}
	if _, err := wire.NewSubjects(cfg.Prefix); err != nil {
		return fmt.Errorf("bus: %w", err)
	}
	_, err = cfg.access()
	return err
}

// place is where cfg connects to, for people: without credentials.
func (cfg Config) place() string {
	switch {
	case cfg.Server != nil:
		return "the embedded server"
	case cfg.URL != "":
		return redact(cfg.URL)
	}
	return "context " + cfg.Context
}

// access is the options for credentials and TLS. Files are read now, so that what is wrong with them is said by name.
func (cfg Config) access() ([]nats.Option, error) {
	if cfg.Server != nil {
		return []nats.Option{nats.InProcessServer(cfg.Server.nats)}, nil
	}
	if err := checkURLs(cfg.URL); err != nil {
		return nil, err
	}

	var opts []nats.Option
	var ways []string
	if cfg.Creds != "" {
		if err := checkCreds(cfg.Creds); err != nil {
			return nil, err
		}
		opts, ways = append(opts, nats.UserCredentials(cfg.Creds)), append(ways, "creds")
	}
	if cfg.NKey != "" {
		opt, err := nkey(cfg.NKey)
		if err != nil {
			return nil, err
		}
		opts, ways = append(opts, opt), append(ways, "nkey")
	}
	if cfg.User != "" {
		opts, ways = append(opts, nats.UserInfo(cfg.User, cfg.Password)), append(ways, "user")
	}
	if cfg.Token != "" {
		opts, ways = append(opts, nats.Token(cfg.Token)), append(ways, "token")
	}
	if len(ways) > 1 {
		return nil, fmt.Errorf("bus: credentials given as %s: give one of them", strings.Join(ways, " and "))
	}
	if cfg.Password != "" && cfg.User == "" {
		return nil, errors.New("bus: a password without a user: give both")
	}

	secure, err := cfg.tls()
	return append(opts, secure...), err
}

func (cfg Config) tls() ([]nats.Option, error) {
	var opts []nats.Option
	if cfg.TLSCA != "" {
		pem, err := read("TLS CA file", cfg.TLSCA)
		if err != nil {
			return nil, err
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("bus: TLS CA file %s: expected certificates in PEM form, found none", cfg.TLSCA)
		}
		opts = append(opts, nats.RootCAs(cfg.TLSCA))
	}
	if (cfg.TLSCert == "") != (cfg.TLSKey == "") {
		return nil, fmt.Errorf("bus: TLS certificate %q and TLS key %q: give both or neither", cfg.TLSCert, cfg.TLSKey)
	}
	if cfg.TLSCert != "" {
		cert, err := read("TLS certificate", cfg.TLSCert)
		if err != nil {
			return nil, err
		}
		key, err := read("TLS key", cfg.TLSKey)
		if err != nil {
			return nil, err
		}
		if _, err := tls.X509KeyPair(cert, key); err != nil {
			return nil, fmt.Errorf("bus: TLS certificate %s with key %s: %w", cfg.TLSCert, cfg.TLSKey, err)
		}
		opts = append(opts, nats.ClientCert(cfg.TLSCert, cfg.TLSKey))
	}
	if cfg.TLSFirst {
		opts = append(opts, nats.Secure(), nats.TLSHandshakeFirst())
	}
	return opts, nil
}

func nkey(path string) (nats.Option, error) {
	if _, err := read("nkey file", path); err != nil {
		return nil, err
	}
	opt, err := nats.NkeyOptionFromSeed(path)
	if err != nil {
		return nil, fmt.Errorf("bus: nkey file %s: expected one line with a user seed that begins with SU: %w", path, err)
	}
	return opt, nil
}

func checkCreds(path string) error {
	text, err := read("creds file", path)
	if err != nil {
		return err
	}
	const want = "expected the JWT and the seed of a user, as nsc and the nats CLI write them"
	if _, err := nkeys.ParseDecoratedJWT(text); err != nil {
		return fmt.Errorf("bus: creds file %s: no JWT: %s: %w", path, want, err)
	}
	if _, err := nkeys.ParseDecoratedUserNKey(text); err != nil {
		return fmt.Errorf("bus: creds file %s: no user seed: %s: %w", path, want, err)
	}
	return nil
}

func read(what, path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("bus: %s: %w", what, err) // the error has the path in it
	}
	return b, nil
}

// checkURLs looks at URLs before nats.go does, which would quote a bad one with its password.
func checkURLs(urls string) error {
	for one := range strings.SplitSeq(urls, ",") {
		one = strings.TrimSpace(one)
		if one == "" {
			continue
		}
		if !strings.Contains(one, "://") {
			one = "nats://" + one
		}
		u, err := url.Parse(one)
		if err != nil {
			return fmt.Errorf("bus: URL %s: %w; expected nats://host:4222", redact(one), unquoted(err))
		}
		switch u.Scheme {
		case "nats", "tls", "ws", "wss":
		default:
			return fmt.Errorf("bus: URL %s: scheme %q: expected nats, tls, ws or wss", redact(one), u.Scheme)
		}
		if u.Hostname() == "" {
			return fmt.Errorf("bus: URL %s: no host; expected nats://host:4222", redact(one))
		}
		if port := u.Port(); port != "" {
			if _, err := strconv.ParseUint(port, 10, 16); err != nil {
				return fmt.Errorf("bus: URL %s: port %s: expected 1 to 65535", redact(one), port)
			}
		}
	}
	return nil
}

// redact takes everything before the @ out of each URL.
func redact(urls string) string {
	list := strings.Split(urls, ",")
	for i, one := range list {
		scheme, rest, ok := strings.Cut(strings.TrimSpace(one), "://")
		if !ok {
			scheme, rest = "nats", scheme
		}
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			rest = "***@" + rest[at+1:]
		}
		list[i] = scheme + "://" + rest
	}
	return strings.Join(list, ",")
}

// unquoted is err without the URL that url.Parse puts in front.
func unquoted(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
