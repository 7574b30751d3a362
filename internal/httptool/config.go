package httptool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// A Config is the http section of a manifest. Only URL is required.
type Config struct {
	// Method is empty for GET.
	Method string `json:"method"`

	// URL is absolute. {name} in its path or query is the argument of that name, escaped. A call that lacks one that is in
	// the path is refused.
	URL string `json:"url"`

	// Query is added to the URL's. A value that is one {name} is repeated for each item of a list, and left out where the
	// argument is absent, as is any other value that lacks an argument.
	Query map[string]string `json:"query"`

	// Headers may hold {name}, and secrets by reference: ${env:NAME}, ${file:/path}. They are read once.
	Headers map[string]string `json:"headers"`

	// Body is "arguments" (all of them), "rest" (those that are used nowhere else), "none", or a JSON value whose texts may
	// hold {name}. Empty means rest for POST, PUT and PATCH, and none for others.
	Body json.RawMessage `json:"body"`

	// BodyAs is json or form (application/x-www-form-urlencoded). Empty means json.
	BodyAs string `json:"body_as"`

	// Success is the statuses that are a result, such as 200 or "2xx". Empty means 2xx.
	Success []Status `json:"success"`

	// Result is how the response is read: auto, json, text or bytes. Empty means auto: JSON where it is JSON, other text
	// as text but HTML refused, and anything else as it is, with its content type.
	Result string `json:"result"`

	// Pick is the JSON pointer of what the result is within the response. Empty means all of it.
	Pick string `json:"pick"`

	// AllowHosts are hosts that redirects may lead to, as name or name:port, beside the URL's own.
	AllowHosts []string `json:"allow_hosts"`

	// AllowPrivate allows addresses that are not public: private, loopback, link-local and others.
	AllowPrivate bool `json:"allow_private"`

	// MaxBytes bounds the response, unpacked. Zero means 8 MiB, and 64 MiB is the most.
	MaxBytes int64 `json:"max_bytes"`
}

// A Status is an HTTP status or, as "2xx", a hundred of them.
type Status string

// UnmarshalJSON reads 200 as well as "200" and "2xx".
func (s *Status) UnmarshalJSON(b []byte) error {
	*s = Status(strings.Trim(string(b), `"`))
	return nil
}

func (s Status) valid() bool {
	if len(s) == 3 && s[1:] == "xx" {
		return s[0] >= '1' && s[0] <= '5'
	}
	n, err := strconv.Atoi(string(s))
	return err == nil && n >= 200 && n <= 599
}

func (s Status) has(status int) bool {
	text := strconv.Itoa(status)
	return string(s) == text || s[1:] == "xx" && s[:1] == Status(text[:1])
}

const defaultMaxBytes = 8 << 20

var (
	methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
	results = []string{"auto", "json", "text", "bytes"}
)

// ours are headers that the bridge or net/http sets.
var ours = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Trailer", "Te", "Keep-Alive", "Proxy-Connection", "Accept-Encoding"}

// A builder makes an endpoint of a Config, and finds what is wrong with it.
type builder struct {
	endpoint
	problems tool.Problems
	used     map[string]bool // arguments that url, query and headers use
}

func (b *builder) say(field, format string, args ...any) {
	b.problems = append(b.problems, tool.Problem{Field: "http." + field, Message: fmt.Sprintf(format, args...)})
}

// build is the endpoint of a Config, for the tool of a manifest.
func build(cfg Config, m *tool.Manifest) (*endpoint, tool.Problems) {
	b := &builder{used: map[string]bool{}}
	b.tool, b.effect = m.ID, m.Effect
	b.method = strings.ToUpper(cfg.Method)
	if b.method == "" {
		b.method = http.MethodGet
	}
	if !slices.Contains(methods, b.method) {
		b.say("method", "expected %s, got %.40q", strings.Join(methods, " or "), cfg.Method)
	}
	b.url(cfg.URL, cfg.AllowHosts)
	for _, name := range slices.Sorted(maps.Keys(cfg.Query)) {
		t := b.template("query."+name, cfg.Query[name])
		b.query = append(b.query, param{name: name, value: t})
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Headers)) {
		b.header(name, cfg.Headers[name])
	}
	b.mark()
	b.body(cfg)
	b.answer(cfg)
	b.known(m)
	if len(b.problems) > 0 {
		return nil, b.problems
	}
	b.endpoint.use(newTransport(cfg.AllowPrivate))
	return &b.endpoint, nil
}

// url splits the URL: scheme and host are fixed, path and query are templates.
func (b *builder) url(s string, hosts []string) {
	if s == "" {
		b.say("url", "is missing; give one such as https://api.example.com/v1/cities/{city}")
		return
	}
	scheme, rest, _ := strings.Cut(s, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	host, rest := rest[:end], rest[end:]
	u, err := url.Parse(scheme + "://" + host)
	switch {
	case strings.ContainsAny(scheme+host, "{}$"):
		b.say("url", "scheme and host are fixed: no {name} and no reference may stand in them")
		return
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		b.say("url", "expected an http or https URL, got %.80q", s)
		return
	case u.User != nil:
		b.say("url", "a user name in it would be logged; give it in headers, as Authorization: Basic ${env:NAME}")
		return
	case strings.Contains(rest, "#"):
		b.say("url", "a fragment (#) is never sent; remove it")
		return
	}
	b.base = u
	path, query, has := strings.Cut(rest, "?")
	b.path = b.template("url", path)
	if !sendable(u, b.path) {
		b.say("url", "the path %.80q cannot be sent: escape what is no letter, and write it without . and .. as segments", path)
	}
	if has {
		for pair := range strings.SplitSeq(query, "&") {
			name, value, _ := strings.Cut(pair, "=")
			plainName, err1 := url.QueryUnescape(name)
			plainValue, err2 := url.QueryUnescape(value)
			if err1 != nil || err2 != nil || strings.ContainsAny(plainName, "{}") {
				b.say("url", "the query %.40q cannot be read; give it under query", pair)
				continue
			}
			b.query = append(b.query, param{name: plainName, value: b.template("url", plainValue)})
		}
	}
	b.allow = allowed{origin(u)[len(u.Scheme)+len("://"):]: true}
	if u.Scheme == "http" {
		b.allow[strings.ToLower(u.Hostname())+":443"] = true // an upgrade to TLS
	}
	for i, h := range hosts {
		h = strings.ToLower(h)
		if h == "" || strings.ContainsAny(h, "/@*{}$ ") {
			b.say(fmt.Sprintf("allow_hosts[%d]", i), "expected a host, or host:port, got %.80q", h)
		}
		b.allow[h] = true
	}
}

// sendable says whether a path makes a URL, and the one that is written.
func sendable(u *url.URL, path template) bool {
	s := ""
	for _, p := range path {
		s += p.text
		if p.arg != "" {
			s += "x"
		}
	}
	for segment := range strings.SplitSeq(s, "/") {
		if segment == "." || segment == ".." {
			return false
		}
	}
	_, err := url.Parse(u.String() + s)
	return err == nil && printable(s)
}

func (b *builder) template(field, s string) template {
	if strings.Contains(s, "${") {
		b.say(field, "secrets may stand in headers only: elsewhere they end up in logs")
		return nil
	}
	t, err := parseTemplate(s)
	if err != nil {
		b.say(field, "%v", err)
	}
	return t
}

func (b *builder) header(name, value string) {
	h, secrets, err := parseHeader(name, value)
	switch {
	case err != nil:
		b.say("headers."+name, "%v", err)
	case slices.Contains(ours, http.CanonicalHeaderKey(name)):
		b.say("headers."+name, "this header is set by the bridge; remove it")
	}
	b.headers = append(b.headers, h)
	b.secrets = append(b.secrets, secrets...)
}

// mark remembers which arguments have their place already.
func (b *builder) mark() {
	use := func(t template) {
		for _, name := range t.args() {
			b.used[name] = true
		}
	}
	use(b.path)
	for _, q := range b.query {
		use(q.value)
	}
	for _, h := range b.headers {
		use(h.value)
	}
}

func (b *builder) body(cfg Config) {
	switch cfg.BodyAs {
	case "", "json", "form":
		b.form = cfg.BodyAs == "form"
	default:
		b.say("body_as", "expected json or form, got %.40q", cfg.BodyAs)
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(cfg.Body))
	d.UseNumber()
	if len(cfg.Body) > 0 && d.Decode(&v) != nil {
		b.say("body", "expected JSON")
		return
	}
	switch v {
	case nil:
		if slices.Contains([]string{"POST", "PUT", "PATCH"}, b.method) {
			b.send = b.rest
		}
		return
	case "none":
		return
	case "arguments":
		b.send = func(args arguments) (any, bool) { return map[string]any(args), true }
		return
	case "rest":
		b.send = b.rest
		return
	}
	if bytes.Contains(cfg.Body, []byte("${")) {
		b.say("body", "secrets may stand in headers only: elsewhere they end up in logs")
		return
	}
	s, err := parseShape(v)
	if err != nil {
		b.say("body", "%v", err)
		return
	}
	for _, name := range s.args() {
		b.used[name] = true
	}
	b.send = s.fill
}

// rest is the arguments that have no other place.
func (b *builder) rest(args arguments) (any, bool) {
	rest := map[string]any{}
	for name, v := range args {
		if !b.used[name] {
			rest[name] = v
		}
	}
	return rest, true
}

func (b *builder) answer(cfg Config) {
	b.success = cfg.Success
	for i, s := range cfg.Success {
		if !s.valid() {
			b.say(fmt.Sprintf("success[%d]", i), `expected a status such as 200 or "2xx", got %.40q`, string(s))
		}
	}
	if len(b.success) == 0 {
		b.success = []Status{"2xx"}
	}
	b.result = cfg.Result
	if b.result == "" {
		b.result = "auto"
	}
	if !slices.Contains(results, b.result) {
		b.say("result", "expected %s, got %.40q", strings.Join(results, " or "), cfg.Result)
	}
	pick, err := tool.ParsePointer(cfg.Pick)
	if err != nil {
		b.say("pick", "%v", err)
	}
	if len(pick) > 0 && (b.result == "text" || b.result == "bytes") {
		b.say("pick", "only JSON has parts, and result is %s", b.result)
	}
	b.pick = pick
	b.maxBytes = cfg.MaxBytes
	if b.maxBytes == 0 {
		b.maxBytes = defaultMaxBytes
	}
	if b.maxBytes < 1 || b.maxBytes > wire.MaxBlob {
		b.say("max_bytes", "expected 1 to %d, got %d", wire.MaxBlob, cfg.MaxBytes)
	}
}

// known says so where the endpoint uses an argument that the input schema does not have.
func (b *builder) known(m *tool.Manifest) {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Ref        string                     `json:"$ref"`
		AllOf      []json.RawMessage          `json:"allOf"`
		AnyOf      []json.RawMessage          `json:"anyOf"`
		OneOf      []json.RawMessage          `json:"oneOf"`
	}
	if json.Unmarshal(m.Input, &schema) != nil || schema.Properties == nil || schema.Ref != "" || schema.AllOf != nil || schema.AnyOf != nil || schema.OneOf != nil {
		return
	}
	names := slices.Sorted(maps.Keys(schema.Properties))
	for _, name := range slices.Sorted(maps.Keys(b.used)) {
		if _, ok := schema.Properties[name]; ok {
			continue
		}
		hint := ""
		if near := tool.Nearest(name, names, 1); len(near) > 0 {
			hint = "; did you mean {" + near[0] + "}?"
		}
		b.problems = append(b.problems, tool.Problem{Field: "http", Message: fmt.Sprintf("{%.64s} is no property of input_schema%s", name, hint)})
	}
}
