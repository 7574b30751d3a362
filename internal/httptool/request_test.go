package httptool

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
)

func TestRequest(t *testing.T) {
	s := serve(t, seen)
	for _, tc := range []struct {
		name string
		cfg  Config
		args string
		want string
	}{
		{"path", Config{URL: "/v1/{city}/now"}, `{"city":"Zürich"}`, "GET /v1/Z%C3%BCrich/now"},
		{"a path cannot be left", Config{URL: "/v1/{city}/now"}, `{"city":"a/../../b?x#y"}`, "GET /v1/a%2F..%2F..%2Fb%3Fx%23y/now"},
		{"escapes are escaped", Config{URL: "/v1/{city}"}, `{"city":"%2e%2e"}`, "GET /v1/%252e%252e"},
		{"numbers keep their digits", Config{URL: "/{n}"}, `{"n":12345678901234567890}`, "GET /12345678901234567890"},
		{"query of the URL", Config{URL: "/a?q={q}&x=1%202"}, `{"q":"a&b=c +"}`, "GET /a?q=a%26b%3Dc%20%2B&x=1%202"},
		{"query", Config{URL: "/a", Query: map[string]string{"units": "metric", "tag": "{tags}", "none": "{none}"}}, `{"tags":["x","y"]}`, "GET /a?tag=x&tag=y&units=metric"},
		{"query in text", Config{URL: "/a", Query: map[string]string{"at": "{lat},{lon}", "no": "{x}-"}}, `{"lat":47.5,"lon":8}`, "GET /a?at=47.5%2C8"},
		{"null is nothing", Config{URL: "/a", Query: map[string]string{"q": "{q}"}}, `{"q":null}`, "GET /a"},
		{"rest", Config{Method: "post", URL: "/a/{id}"}, `{"id":1,"b":{"c":"<&>"}}`, `POST /a/1 {"b":{"c":"<&>"}}`},
		{"arguments", Config{Method: "PUT", URL: "/a/{id}", Body: json.RawMessage(`"arguments"`)}, `{"id":1}`, `PUT /a/1 {"id":1}`},
		{"no body", Config{Method: "POST", URL: "/a", Body: json.RawMessage(`"none"`)}, `{"id":1}`, `POST /a`},
		{"template", Config{Method: "POST", URL: "/a", Body: json.RawMessage(`{"who":{"name":"{name}","tags":["{tag}","b"]},"n":3,"text":"Hi {name}, {{x}}","gone":"{gone}"}`)},
			`{"name":"Ann \"A\"","tag":null}`, `POST /a {"n":3,"text":"Hi Ann \"A\", {x}","who":{"name":"Ann \"A\"","tags":[null,"b"]}}`},
		{"form", Config{Method: "POST", URL: "/a", BodyAs: "form"}, `{"a":"x y","b":[1,2]}`, `POST /a a=x+y&b=1&b=2`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.cfg.URL = s.URL + tc.cfg.URL
			got, f := ask(t, open(t, tc.cfg), tc.args)
			var text string
			if f != nil || json.Unmarshal([]byte(got), &text) != nil || text != tc.want {
				t.Errorf("the server saw %s, %v, want %s", text, f, tc.want)
			}
		})
	}
}

func TestArgumentsThatDoNotFit(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the server was asked") })
	for args, want := range map[string]string{
		`{}`:                    "the argument id: expected a value for the URL, got none",
		`{"id":null}`:           "the argument id: expected a value for the URL, got none",
		`{"id":""}`:             "the argument id: expected something to put into the URL",
		`{"id":".."}`:           `the argument id: expected a name for the URL, got ".."`,
		`{"id":"."}`:            `the argument id: expected a name for the URL, got "."`,
		`{"id":1,"h":"a\r\nX"}`: "the argument h: expected text for the header X-H, got a line break",
	} {
		e := open(t, Config{URL: s.URL + "/a/{id}/b", Headers: map[string]string{"X-H": "{h}"}})
		if _, f := ask(t, e, args); f == nil || f.Kind != fault.InvalidArguments || f.Run() != fault.NotStarted || !strings.Contains(f.Message, want) || len(f.Violations) != 1 {
			t.Errorf("%s: fault %v, want invalid_arguments: %s", args, f, want)
		}
	}
}

func TestHeaders(t *testing.T) {
	t.Setenv("HTTPTOOL_TEST_TOKEN", "s3cr3t-{id}")
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("k3y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got http.Header
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { got = r.Header; w.WriteHeader(204) })
	cfg := Config{Method: "POST", URL: s.URL, AllowPrivate: true, Headers: map[string]string{
		"Authorization": "Bearer ${env:HTTPTOOL_TEST_TOKEN}", "X-Key": "${file:" + file + "}", "X-Lang": "{lang}", "X-None": "{none}"}}
	e := openAs(t, cfg, tool.Manifest{ID: "t", Effect: tool.Write})
	if out, f := ask(t, e, `{"lang":"${env:PATH}","id":"7"}`); f != nil || out != "null" {
		t.Fatal(out, f)
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer s3cr3t-{id}", "X-Key": "k3y", "X-Lang": "${env:PATH}", "X-None": "", "Idempotency-Key": "t1/c1",
		"Content-Type": "application/json", "Traceparent": "00-a-b-01", "User-Agent": userAgent,
	} {
		if v := got.Get(name); v != want {
			t.Errorf("header %s: %q, want %q", name, v, want)
		}
	}
	if _, f := ask(t, openAs(t, cfg, tool.Manifest{ID: "t", Effect: tool.Read}), `{}`); f != nil || got.Get("Idempotency-Key") != "" {
		t.Errorf("a read sent the key %q", got.Get("Idempotency-Key"))
	}
}

func TestConfigMistakes(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","properties":{"city":{}}}`)
	for want, cfg := range map[string]Config{
		"http.url: is missing":                                              {},
		"http.url: expected an http or https URL":                           {URL: "ftp://a/b"},
		"http.url: scheme and host are fixed":                               {URL: "https://{city}.example.com/"},
		"http.url: a user name in it would be logged":                       {URL: "https://a:b@example.com/"},
		"http.url: a fragment":                                              {URL: "https://example.com/#a"},
		"http.url: secrets may stand in headers only":                       {URL: "https://example.com/?k=${env:X}"},
		"http.url: the path \"/a/../b\" cannot be sent":                     {URL: "https://example.com/a/../b"},
		"http.method: expected GET or":                                      {URL: "https://example.com", Method: "FETCH"},
		"http.query.q: secrets may stand in headers only":                   {URL: "https://example.com", Query: map[string]string{"q": "${env:X}"}},
		"http.query.q: a { is not closed":                                   {URL: "https://example.com", Query: map[string]string{"q": "{x"}},
		"http.query.q: {+x}: operators are not supported":                   {URL: "https://example.com", Query: map[string]string{"q": "{+x}"}},
		"http.headers.X-A: the variable HTTPTOOL_NONE is not set":           {URL: "https://example.com", Headers: map[string]string{"X-A": "${env:HTTPTOOL_NONE}"}},
		"http.headers.X-A: expected ${env:NAME} or ${file:/path}":           {URL: "https://example.com", Headers: map[string]string{"X-A": "${vault:x}"}},
		"http.headers.X-A: the value holds a line break":                    {URL: "https://example.com", Headers: map[string]string{"X-A": "a\nb"}},
		"http.headers.host: this header is set by the bridge":               {URL: "https://example.com", Headers: map[string]string{"host": "a"}},
		"http.headers.X A: \"X A\" is not the name":                         {URL: "https://example.com", Headers: map[string]string{"X A": "a"}},
		"http.body: secrets may stand in headers only":                      {URL: "https://example.com", Body: json.RawMessage(`{"a":"${env:X}"}`)},
		"http.body: a: a } stands alone":                                    {URL: "https://example.com", Body: json.RawMessage(`{"a":"}"}`)},
		"http.body_as: expected json or form":                               {URL: "https://example.com", BodyAs: "xml"},
		"http.success[0]: expected a status":                                {URL: "https://example.com", Success: []Status{"ok"}},
		"http.result: expected auto or json":                                {URL: "https://example.com", Result: "yaml"},
		"http.pick: pointer":                                                {URL: "https://example.com", Pick: "data"},
		"http.pick: only JSON has parts":                                    {URL: "https://example.com", Pick: "/a", Result: "text"},
		"http.max_bytes: expected 1 to 67108864":                            {URL: "https://example.com", MaxBytes: 1 << 40},
		"http.allow_hosts[0]: expected a host":                              {URL: "https://example.com", AllowHosts: []string{"https://x"}},
		"http: {ctiy} is no property of input_schema; did you mean {city}?": {URL: "https://example.com/{ctiy}"},
	} {
		_, err := New(cfg, tool.Manifest{ID: "t", Input: schema})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New() = %v, want %s", err, want)
		}
	}
}

func TestQueryStyles(t *testing.T) {
	args := arguments{"list": []any{"a", "b c"}, "object": map[string]any{"x": "1", "y": true}}
	for style, want := range map[style][2]string{
		repeated:   {"p=a&p=b%20c", "p=%7B%22x%22%3A%221%22%2C%22y%22%3Atrue%7D"},
		commas:     {"p=a%2Cb%20c", "p=%7B%22x%22%3A%221%22%2C%22y%22%3Atrue%7D"},
		pipes:      {"p=a%7Cb%20c", ""},
		spaces:     {"p=a%20b%20c", ""},
		deepObject: {"", "p%5Bx%5D=1&p%5By%5D=true"},
		spread:     {"", "x=1&y=true"},
		asJSON:     {"p=%5B%22a%22%2C%22b%20c%22%5D", ""},
	} {
		for i, name := range []string{"list", "object"} {
			e := endpoint{query: []param{{name: "p", value: template{{arg: name}}, style: style}}}
			if got, f := e.queryOf(args); want[i] != "" && (f != nil || got != want[i]) {
				t.Errorf("style %d of %s = %s, %v, want %s", style, name, got, f, want[i])
			}
		}
	}
}

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"", "a{b}c", "{{}}", "{", "}", "{}", "{+a}", "{a}{b}"} {
		f.Add(s, "v")
	}
	f.Fuzz(func(t *testing.T, s, v string) {
		tpl, err := parseTemplate(s)
		if err != nil {
			return
		}
		args := arguments{}
		for _, name := range tpl.args() {
			args[name] = v
		}
		path, fault := expandPath(tpl, args)
		if fault != nil {
			return
		}
		if n := strings.Count(path, "/"); !slices.Contains(tpl, part{}) && n > strings.Count(s, "/") {
			t.Errorf("%q with %q = %q has more segments than its template", s, v, path)
		}
	})
}
