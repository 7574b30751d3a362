package bus

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// A ServerConfig describes an embedded nats-server with JetStream.
type ServerConfig struct {
	// ConfigFile is a configuration of nats-server's own. Empty means none. With it, everything below but DontListen and
	// Logger is not looked at: it says all that. With JetStream it must name a store_dir.
	ConfigFile string

	// Dir holds JetStream's files. Empty means a new temporary directory that is removed at Shutdown.
	Dir  string
	Host string // of the TCP listener; empty means 127.0.0.1
	Port int    // 0 means 4222, -1 any free one
	// DontListen starts no listener: only in-process connections.
	DontListen bool
	MaxMemory  int64        // bytes of memory streams; 0 means 256 MiB
	MaxStore   int64        // bytes of file streams; 0 means 4 GiB
	MaxPayload int32        // bytes of one message; 0 means 1 MiB
	Lazy       bool         // do not sync every write: faster, and a power cut loses up to two minutes
	Logger     *slog.Logger // gets warnings and errors, the rest at debug level; nil discards
}

// A Server is an embedded nats-server. It takes no signals: end it with Shutdown.
type Server struct {
	nats *server.Server
	dir  *storeDir
	once sync.Once
}

// StartServer starts one and waits until it takes connections. A directory in use by another server is an error that
// names the holder; a port in use is one before anything was touched.
func StartServer(cfg ServerConfig) (*Server, error) {
	opts, err := cfg.options()
	if err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	if err := portFree(opts); err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	s := &Server{}
	if opts.JetStream {
		if s.dir, err = claimDir(opts.StoreDir); err != nil {
			return nil, fmt.Errorf("bus: %w", err)
		}
		opts.StoreDir = s.dir.path
	}
	log := &serverLog{log: cfg.Logger}
	if log.log == nil {
		log.log = slog.New(slog.DiscardHandler)
	}
	if err := s.start(opts, log); err != nil {
		s.Shutdown()
		return nil, fmt.Errorf("bus: embedded server: %w", err)
	}
	return s, nil
}

func (s *Server) start(opts *server.Options, log *serverLog) (err error) {
	s.nats, err = server.NewServer(opts)
	if err != nil {
		return err
	}
	s.nats.SetLoggerV2(log, false, false, false)
	s.nats.Start()
	if f := log.fatal.Load(); f != nil {
		return errors.New(*f)
	}
	if !s.nats.ReadyForConnections(10 * time.Second) {
		return errors.New("it was not ready for connections within 10 s")
	}
	return nil
}

// options are nats-server's, forced to what an embedded one must have: no signal handlers, which would end the process.
func (cfg ServerConfig) options() (*server.Options, error) {
	if cfg.ConfigFile != "" {
		opts, err := server.ProcessConfigFile(cfg.ConfigFile)
		if err != nil {
			return nil, fmt.Errorf("nats-server configuration: %w", err)
		}
		if opts.JetStream && opts.StoreDir == "" {
			return nil, fmt.Errorf("nats-server configuration %s: jetstream without store_dir: name a directory", cfg.ConfigFile)
		}
		opts.NoSigs, opts.NoLog = true, true
		opts.DontListen = cfg.DontListen
		return opts, nil
	}
	if cfg.Port < -1 || cfg.Port > 65535 {
		return nil, fmt.Errorf("port = %d: expected 1 to 65535, 0 for 4222 or -1 for any", cfg.Port)
	}
	if cfg.MaxPayload < 0 || cfg.MaxPayload > server.MAX_PAYLOAD_MAX_SIZE {
		return nil, fmt.Errorf("max payload = %d: expected 1 to %d bytes", cfg.MaxPayload, server.MAX_PAYLOAD_MAX_SIZE)
	}
	if cfg.MaxMemory < 0 || cfg.MaxStore < 0 {
		return nil, fmt.Errorf("max memory = %d, max store = %d: expected bytes, or 0 for the default", cfg.MaxMemory, cfg.MaxStore)
	}
	return &server.Options{
		ServerName:          "toolbus-embedded",
		Host:                orElse(cfg.Host, "127.0.0.1"),
		Port:                orElse(cfg.Port, 4222),
		DontListen:          cfg.DontListen,
		NoSigs:              true,
		NoLog:               true,
		MaxPayload:          orElse(cfg.MaxPayload, 1<<20),
		NoFastProducerStall: true,

		JetStream:          true,
		StoreDir:           cfg.Dir,
		JetStreamMaxMemory: orElse(cfg.MaxMemory, 256<<20),
		JetStreamMaxStore:  orElse(cfg.MaxStore, 4<<30),
		SyncAlways:         !cfg.Lazy, // the only setting that lost nothing in power cuts
	}, nil
}

func orElse[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// portFree says that somebody else has the port before files are touched.
func portFree(opts *server.Options) error {
	if opts.DontListen || opts.Port <= 0 {
		return nil
	}
	addr := net.JoinHostPort(opts.Host, strconv.Itoa(opts.Port))
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("port %d of %s is in use, perhaps by another server; connect to that with --nats-url nats://%s, or pass another --port",
			opts.Port, opts.Host, addr)
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", addr, err)
	}
	return l.Close()
}

// ClientURL is where others connect; "" where it does not listen.
func (s *Server) ClientURL() string {
	if s.nats.Addr() == nil {
		return ""
	}
	return s.nats.ClientURL()
}

// NATS is the server below, for its figures.
func (s *Server) NATS() *server.Server { return s.nats }

// Shutdown stops the server and waits until its files are closed. Doing it twice does nothing.
func (s *Server) Shutdown() {
	s.once.Do(func() {
		if s.nats != nil {
			s.nats.Shutdown()
			s.nats.WaitForShutdown()
		}
		s.dir.release()
	})
}

// serverLog is slog as nats-server's logger. Its Fatalf does not end the process; StartServer reads what it said.
type serverLog struct {
	log   *slog.Logger
	fatal atomic.Pointer[string]
}

func (l *serverLog) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.fatal.CompareAndSwap(nil, &text)
	l.log.Error("nats-server: " + text)
}
func (l *serverLog) Errorf(format string, v ...any) {
	l.log.Error("nats-server: " + fmt.Sprintf(format, v...))
}
func (l *serverLog) Warnf(format string, v ...any) {
	l.log.Warn("nats-server: " + fmt.Sprintf(format, v...))
}
func (l *serverLog) Noticef(format string, v ...any) {
	l.log.Debug("nats-server: " + fmt.Sprintf(format, v...))
}
func (l *serverLog) Debugf(string, ...any) {}
func (l *serverLog) Tracef(string, ...any) {}

var _ server.Logger = (*serverLog)(nil)
