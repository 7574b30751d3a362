package mcptool

import (
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"regexp"
	"strings"
)

// maxSecret bounds a file that a header refers to, in bytes.
const maxSecret = 16 << 10

var reference = regexp.MustCompile(`\$\{([^}]*)\}`)

// expandAll is headers with what their references stand for. Errors name headers and references, never values.
func expandAll(headers map[string]string) (map[string]string, error) {
	full := map[string]string{}
	var errs []error
	for name, value := range headers {
		v, err := expand(value)
		if err == nil && (name == "" || strings.ContainsAny(name, " \t\r\n:")) {
			err = errors.New("the name is none")
		}
		if err == nil && strings.ContainsAny(v, "\r\n\x00") {
			err = errors.New("the value must be one line")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("mcp: header %q: %w", name, err))
			continue
		}
		full[textproto.CanonicalMIMEHeaderKey(name)] = v
	}
	return full, errors.Join(errs...)
}

// expand puts in what ${env:NAME} and ${file:PATH} stand for; of a file without the end of its last line.
func expand(text string) (string, error) {
	var errs []error
	out := reference.ReplaceAllStringFunc(text, func(ref string) string {
		kind, name, _ := strings.Cut(ref[2:len(ref)-1], ":")
		v, err := lookUp(kind, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", ref, err))
		}
		return v
	})
	return out, errors.Join(errs...)
}

func lookUp(kind, name string) (string, error) {
	switch kind {
	case "env":
		v, ok := os.LookupEnv(name)
		if !ok {
			return "", errors.New("the variable is not set")
		}
		return v, nil
	case "file":
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
		if err == nil && len(data) > maxSecret {
			err = fmt.Errorf("it has more than %d bytes", maxSecret)
		}
		return strings.TrimRight(string(data), "\r\n"), err
	}
	return "", errors.New("expected ${env:NAME} or ${file:PATH}")
}
