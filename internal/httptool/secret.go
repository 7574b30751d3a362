package httptool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// reference is ${env:NAME} or ${file:/path}.
var reference = regexp.MustCompile(`\$\{([a-z]*):?([^}]*)\}`)

// maxSecret bounds a secret in a file, in bytes.
const maxSecret = 16 << 10

// A header is a header of the request: its value is text, secrets and arguments.
type header struct {
	name  string
	value template
}

// parseHeader reads the value of a header, and gives the secrets that it refers to. What a secret holds is never read as
// a template, and what a call brings never as a reference.
func parseHeader(name, value string) (header, []string, error) {
	h := header{name: name}
	if !isToken(name) {
		return h, nil, fmt.Errorf("%.40q is not the name of a header", name)
	}
	var secrets []string
	add := func(text string) error {
		t, err := parseTemplate(text)
		h.value = append(h.value, t...)
		return err
	}
	end := 0
	for _, at := range reference.FindAllStringSubmatchIndex(value, -1) {
		if err := add(value[end:at[0]]); err != nil {
			return h, nil, err
		}
		secret, err := resolve(value[at[2]:at[3]], value[at[4]:at[5]])
		if err != nil {
			return h, nil, err
		}
		secrets = append(secrets, secret)
		h.value = append(h.value, part{text: secret})
		end = at[1]
	}
	if err := add(value[end:]); err != nil {
		return h, nil, err
	}
	for _, p := range h.value {
		if !printable(p.text) {
			return h, nil, errors.New("the value holds a line break or another control character")
		}
	}
	return h, secrets, nil
}

// resolve is the secret behind a reference. The error does not hold any of it.
func resolve(from, name string) (string, error) {
	switch from {
	case "env":
		v := os.Getenv(name)
		if v == "" {
			return "", fmt.Errorf("the variable %.80s is not set, or empty; set it in the environment", name)
		}
		return oneLine(v, "the variable "+name)
	case "file":
		f, err := os.Open(name)
		if err != nil {
			return "", fmt.Errorf("the secret cannot be read: %w", err)
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
		if err != nil {
			return "", fmt.Errorf("the secret cannot be read: %w", err)
		}
		if len(b) > maxSecret {
			return "", fmt.Errorf("the secret in %s is longer than %d bytes", name, maxSecret)
		}
		return oneLine(string(b), "the file "+name)
	}
	return "", errors.New("expected ${env:NAME} or ${file:/path}")
}

func oneLine(s, where string) (string, error) {
	s = strings.TrimRight(s, "\r\n")
	if s == "" {
		return "", fmt.Errorf("%s is empty", where)
	}
	if !printable(s) {
		return "", fmt.Errorf("%s holds a line break or another control character within the secret", where)
	}
	return s, nil
}

// printable says whether text may stand in a header.
func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) < 0
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// redact takes secrets out of what is said.
func (e *endpoint) redact(s string) string {
	for _, secret := range e.secrets {
		s = strings.ReplaceAll(s, secret, "[secret]")
	}
	return s
}
