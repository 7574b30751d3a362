package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/pflag"

	"github.com/toolbus/toolbus/bus"
)

// A Config says how to reach NATS, as a configuration file and the environment write it. The zero value is
// nats://127.0.0.1:4222 without credentials. Programs embed it in their own, inline.
type Config struct {
	NATSURL      string `yaml:"nats_url" env:"TOOLBUS_NATS_URL"`           // comma-separated
	NATSContext  string `yaml:"nats_context" env:"TOOLBUS_NATS_CONTEXT"`   // a context of the nats CLI
	Creds        string `yaml:"creds" env:"TOOLBUS_CREDS"`                 // path of a .creds file
	NKey         string `yaml:"nkey" env:"TOOLBUS_NKEY"`                   // path of a file with an nkey seed
	User         string `yaml:"user" env:"TOOLBUS_USER"`                   //
	PasswordFile string `yaml:"password_file" env:"TOOLBUS_PASSWORD_FILE"` // goes with User
	TokenFile    string `yaml:"token_file" env:"TOOLBUS_TOKEN_FILE"`       //
	TLSCA        string `yaml:"tls_ca" env:"TOOLBUS_TLS_CA"`               // path of a PEM bundle
	TLSCert      string `yaml:"tls_cert" env:"TOOLBUS_TLS_CERT"`           // path, goes with TLSKey
	TLSKey       string `yaml:"tls_key" env:"TOOLBUS_TLS_KEY"`             //
	TLSFirst     bool   `yaml:"tls_first" env:"TOOLBUS_TLS_FIRST"`         // TLS before the server says anything
	Prefix       string `yaml:"prefix" env:"TOOLBUS_PREFIX"`               // of subjects; empty means tb
	ID           string `yaml:"id" env:"TOOLBUS_ID"`                       // of this process on the bus; empty means a random one
}

// maxSecret bounds a password or token file, in bytes.
const maxSecret = 64 << 10

// Bus is c for bus.Connect. Passwords and tokens are read from their files now, less the line end. The error is a mistake in
// what was given: nobody was asked yet.
func (c Config) Bus() (bus.Config, error) {
	if c.PasswordFile != "" && c.User == "" {
		return bus.Config{}, errors.New("--password-file is given without --user; give both")
	}
	password, err := secret("--password-file", c.PasswordFile)
	if err != nil {
		return bus.Config{}, err
	}
	token, err := secret("--token-file", c.TokenFile)
	if err != nil {
		return bus.Config{}, err
	}
	cfg := bus.Config{
		URL:      c.NATSURL,
		Context:  c.NATSContext,
		Creds:    c.Creds,
		NKey:     c.NKey,
		User:     c.User,
		Password: password,
		Token:    token,
		TLSCA:    c.TLSCA,
		TLSCert:  c.TLSCert,
		TLSKey:   c.TLSKey,
		TLSFirst: c.TLSFirst,
		Prefix:   c.Prefix,
		ID:       c.ID,
	}
	return cfg, cfg.Check()
}

func secret(flag, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	if len(data) > maxSecret {
		return "", fmt.Errorf("%s: %s is larger than %d bytes; is it the right file?", flag, path, maxSecret)
	}
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" {
		return "", fmt.Errorf("%s: %s is empty", flag, path)
	}
	return text, nil
}

// ReadEnv lays the environment's TOOLBUS_* variables over the struct that v points to, by its env tags. What is not set
// changes nothing. The error names the variable.
func ReadEnv(v any) error { return readEnv(v, os.Environ()) }

func readEnv(v any, environ []string) error {
	err := env.ParseWithOptions(v, env.Options{Environment: env.ToMap(environ)})
	var all env.AggregateError
	if !errors.As(err, &all) {
		return err
	}
	var said []error
	for _, e := range all.Errors {
		var p env.ParseError
		if errors.As(e, &p) {
			e = fmt.Errorf("environment: the variable of %s must be a %s: %w", p.Name, p.Type, p.Err)
		}
		said = append(said, e)
	}
	return errors.Join(said...)
}

// NATSFlags are the flags that say how to reach NATS. The zero value is ready for Bind.
type NATSFlags struct {
	given Config
	set   *pflag.FlagSet
}

// Bind adds the flags to set. It is called once.
func (f *NATSFlags) Bind(set *pflag.FlagSet) {
	f.set = set
	g := &f.given
	set.StringVar(&g.NATSURL, "nats-url", "", "NATS server, or several with commas (default nats://127.0.0.1:4222)")
	set.StringVar(&g.NATSContext, "nats-context", "", "context of the nats CLI")
	set.StringVar(&g.Creds, "creds", "", "file with NATS credentials (.creds)")
	set.StringVar(&g.NKey, "nkey", "", "file with an nkey seed")
	set.StringVar(&g.User, "user", "", "user name; goes with --password-file")
	set.StringVar(&g.PasswordFile, "password-file", "", "file with the password of --user")
	set.StringVar(&g.TokenFile, "token-file", "", "file with a token")
	set.StringVar(&g.TLSCA, "tls-ca", "", "file with the certificate authorities to trust (PEM)")
	set.StringVar(&g.TLSCert, "tls-cert", "", "file with our certificate (PEM); goes with --tls-key")
	set.StringVar(&g.TLSKey, "tls-key", "", "file with the key of --tls-cert (PEM)")
	set.BoolVar(&g.TLSFirst, "tls-first", false, "start TLS before the server says anything")
	set.StringVar(&g.Prefix, "prefix", "", "first token of all subjects (default tb)")
	set.StringVar(&g.ID, "id", "", "name of this process on the bus, where its user may have only some (default a random one)")
}

// Over is base with every flag that was given in its place.
func (f *NATSFlags) Over(base Config) Config {
	if f.set == nil {
		return base
	}
	g := &f.given
	for _, field := range []struct {
		flag     string
		to, from *string
	}{
		{"nats-url", &base.NATSURL, &g.NATSURL},
		{"nats-context", &base.NATSContext, &g.NATSContext},
		{"creds", &base.Creds, &g.Creds},
		{"nkey", &base.NKey, &g.NKey},
		{"user", &base.User, &g.User},
		{"password-file", &base.PasswordFile, &g.PasswordFile},
		{"token-file", &base.TokenFile, &g.TokenFile},
		{"tls-ca", &base.TLSCA, &g.TLSCA},
		{"tls-cert", &base.TLSCert, &g.TLSCert},
		{"tls-key", &base.TLSKey, &g.TLSKey},
		{"prefix", &base.Prefix, &g.Prefix},
		{"id", &base.ID, &g.ID},
	} {
		if f.set.Changed(field.flag) {
			*field.to = *field.from
		}
	}
	if f.set.Changed("tls-first") {
		base.TLSFirst = g.TLSFirst
	}
	return base
}

// Config is the flags over the environment over the defaults.
func (f *NATSFlags) Config() (bus.Config, error) {
	var c Config
	if err := ReadEnv(&c); err != nil {
		return bus.Config{}, err
	}
	return f.Over(c).Bus()
}
