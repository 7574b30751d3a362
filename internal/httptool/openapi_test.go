package httptool

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/worker"
)

const pets = `
openapi: 3.0.3
info: {title: Pets, version: 1.2.0}
servers: [{url: "https://{region}.example.com/v1/", variables: {region: {default: eu}}}]
paths:
  /pets:
    get:
      operationId: listPets
      summary: Lists pets.
      tags: [pets, "read only"]
      parameters:
        - {name: limit, in: query, description: How many, schema: {type: integer, minimum: 1, maximum: 100, exclusiveMaximum: true}}
        - {name: tags, in: query, schema: {type: array, items: {type: string}}}
        - {name: ids, in: query, explode: false, schema: {type: array, items: {type: integer}}}
        - {name: "filter[x]", in: query, style: deepObject, explode: true, schema: {type: object}}
        - {name: X-Trace, in: header, schema: {type: string}}
      responses:
        "200":
          description: ok
          content: {application/json: {schema: {type: array, items: {$ref: "#/components/schemas/Pet"}}}}
        default: {description: no}
    post:
      operationId: pets.create
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Pet"}}}}
      responses: {"201": {description: made}}
  /pets/{petId}:
    parameters:
      - {name: petId, in: path, required: true, schema: {type: string}}
    delete:
      responses: {"204": {description: gone}}
    put:
      operationId: rename
      requestBody: {content: {application/x-www-form-urlencoded: {schema: {type: object, properties: {name: {type: string}}}}}}
      responses: {"200": {description: ok}}
  /upload:
    post:
      operationId: upload
      requestBody: {required: true, content: {multipart/form-data: {schema: {type: object}}}}
      responses: {"200": {description: ok}}
components:
  schemas:
    Pet:
      type: object
      required: [name]
      discriminator: {propertyName: kind}
      properties:
        name: {type: string, example: Rex}
        kind: {type: string, nullable: true, enum: [dog, cat]}
        friends: {type: array, items: {$ref: "#/components/schemas/Pet"}}
`

func spec1(t *testing.T, text string, cfg SpecConfig) *Spec {
	t.Helper()
	s, err := OpenAPI([]byte(text), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func find(t *testing.T, s *Spec, id string) worker.Tool {
	t.Helper()
	for _, tl := range s.Tools {
		if tl.Manifest.ID == id {
			return tl
		}
	}
	t.Fatalf("there is no tool %s", id)
	panic("unreachable")
}

func TestOpenAPITools(t *testing.T) {
	s := spec1(t, pets, SpecConfig{TimeoutMs: 5000})
	create := tool.SafeName("pets.create")
	var got []string
	for _, tl := range s.Tools {
		m := tl.Manifest
		if _, err := tool.Compile(m); err != nil {
			t.Errorf("%s: %v", m.ID, err)
		}
		got = append(got, m.ID+" "+string(m.Effect))
		if m.Version != "1.2.0" || m.TimeoutMs != 5000 {
			t.Errorf("%s: version %s, timeout %d", m.ID, m.Version, m.TimeoutMs)
		}
	}
	want := []string{"listPets read", create + " write", "delete_pets_petId idempotent", "rename idempotent"}
	if !slices.Equal(got, want) {
		t.Errorf("tools %v, want %v", got, want)
	}
	if len(s.Notes) != 1 || s.Notes[0] != "POST /upload is left out: its body is neither JSON nor a form" {
		t.Errorf("notes %q, want that of the upload", s.Notes)
	}
	list := find(t, s, "listPets").Manifest
	if list.Description != "Lists pets." || !strings.Contains(string(list.Output), `"$ref":"#/$defs/Pet"`) || list.Tags[1] != tool.SafeName("read only") {
		t.Errorf("manifest %s", list.JSON())
	}
	c, err := tool.Compile(find(t, s, create).Manifest)
	if err != nil {
		t.Fatal(err)
	}
	for args, fine := range map[string]bool{
		`{"body":{"name":"Rex","kind":null,"friends":[{"name":"Tom","kind":"cat"}]}}`: true,
		`{"body":{"name":"Rex","kind":"cow"}}`:                                        false,
		`{"body":{"friends":[{}]}}`:                                                   false,
		`{}`:                                                                          false,
		`{"body":{"name":"a"},"more":1}`:                                              false,
	} {
		if f := c.CheckArgs([]byte(args)); (f == nil) != fine {
			t.Errorf("arguments %s: %v, want fine: %v", args, f, fine)
		}
	}
	l, _ := tool.Compile(list)
	if f := l.CheckArgs([]byte(`{"limit":100}`)); f == nil {
		t.Error("limit 100 is taken, and it must be below")
	}
}

func TestOpenAPICalls(t *testing.T) {
	var key string
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		key = r.Header.Get("X-Key") + r.Header.Get("X-Trace")
		seen(w, r)
	})
	t.Setenv("HTTPTOOL_TEST_TOKEN", "k")
	s := spec1(t, pets, SpecConfig{Server: server.URL + "/v2/", AllowPrivate: true, Headers: map[string]string{"X-Key": "${env:HTTPTOOL_TEST_TOKEN}"}})
	filter := tool.SafeName("filter[x]")
	for _, tc := range []struct{ tool, args, want string }{
		{"listPets", `{"limit":5,"tags":["a","b c"],"ids":[1,2],"` + filter + `":{"y":"z"},"X-Trace":"t"}`,
			"GET /v2/pets?limit=5&tags=a&tags=b%20c&ids=1%2C2&filter%5Bx%5D%5By%5D=z"},
		{tool.SafeName("pets.create"), `{"body":{"name":"Rex"}}`, `POST /v2/pets {"name":"Rex"}`},
		{"delete_pets_petId", `{"petId":"a/b"}`, `DELETE /v2/pets/a%2Fb`},
		{"rename", `{"petId":"7","body":{"name":"Tom & Co"}}`, `PUT /v2/pets/7 name=Tom+%26+Co`},
		{"rename", `{"petId":"7"}`, `PUT /v2/pets/7`},
	} {
		got, f := ask(t, find(t, s, tc.tool).Handler, tc.args)
		var text string
		if f != nil || json.Unmarshal([]byte(got), &text) != nil || text != tc.want {
			t.Errorf("%s(%s): the server saw %s, %v, want %s", tc.tool, tc.args, text, f, tc.want)
		}
		if want := "k"; tc.tool == "listPets" && key != want+"t" || tc.tool != "listPets" && key != want {
			t.Errorf("%s: headers %q", tc.tool, key)
		}
	}
	for _, tl := range s.Tools {
		tl.Handler.(*endpoint).client.CloseIdleConnections()
	}
}

func TestOpenAPIServer(t *testing.T) {
	e := find(t, spec1(t, pets, SpecConfig{}), "listPets").Handler.(*endpoint)
	if got := e.base.String() + e.path[0].text; got != "https://eu.example.com/v1" {
		t.Errorf("the server is %s, want that of the document with its variables", got)
	}
}

func TestOpenAPIInclude(t *testing.T) {
	s := spec1(t, pets, SpecConfig{Include: []string{"listPets", "DELETE /pets/{petId}"}, Prefix: "p_"})
	if len(s.Tools) != 2 || s.Tools[0].Manifest.ID != "p_listPets" {
		t.Errorf("%d tools, first %s, want the two that were asked for", len(s.Tools), s.Tools[0].Manifest.ID)
	}
}

func TestOpenAPIMistakes(t *testing.T) {
	change := func(old, new string) string { return strings.Replace(pets, old, new, 1) }
	for _, tc := range []struct {
		name, text string
		cfg        SpecConfig
		want       string
	}{
		{"not YAML", "{", SpecConfig{}, "read the OpenAPI document"},
		{"no OpenAPI", "a: 1", SpecConfig{}, "expected an OpenAPI document of version 3"},
		{"an old one", "swagger: '2.0'", SpecConfig{}, "expected an OpenAPI document of version 3"},
		{"too large", strings.Repeat(" ", MaxSpecBytes+1), SpecConfig{}, "at most 8388608 are allowed"},
		{"a slip", pets, SpecConfig{Include: []string{"listPet"}}, `no operation "listPet"; did you mean listPets?`},
		{"asked for and not possible", pets, SpecConfig{Include: []string{"upload"}}, "POST /upload: its body is neither JSON nor a form"},
		{"a remote schema", change(`{$ref: "#/components/schemas/Pet"}`, `{$ref: "http://169.254.169.254/x.json"}`), SpecConfig{}, "other documents are not read"},
		{"a file", change(`{$ref: "#/components/schemas/Pet"}`, `{$ref: "/etc/passwd"}`), SpecConfig{}, "other documents are not read"},
		{"no server", change(`servers: [{url: "https://{region}.example.com/v1/", variables: {region: {default: eu}}}]`, ""), SpecConfig{}, "names no server"},
		{"a relative server", change("https://{region}.example.com/v1/", "/v1"), SpecConfig{}, "is not absolute"},
		{"two of one name", change("operationId: rename", "operationId: listPets"), SpecConfig{}, "it would be the tool listPets, as GET /pets is already"},
		{"a secret that is not there", pets, SpecConfig{Headers: map[string]string{"X": "${env:HTTPTOOL_NONE}"}}, "HTTPTOOL_NONE is not set"},
		{"nothing", "openapi: 3.1.0\ninfo: {title: x, version: '1'}\npaths: {}", SpecConfig{}, "no operation that can be a tool"},
	} {
		if _, err := OpenAPI([]byte(tc.text), tc.cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
	}
}

func TestOpenAPI31(t *testing.T) {
	s := spec1(t, `{"openapi":"3.1.0","info":{"title":"x","version":"1"},"servers":[{"url":"https://example.com"}],"paths":{"/a":{"get":{"operationId":"a",
		"parameters":[{"name":"n","in":"query","schema":{"type":["integer","null"],"exclusiveMinimum":3}}],"responses":{"200":{"description":"ok"}}}}}}`, SpecConfig{})
	c, err := tool.Compile(s.Tools[0].Manifest)
	if err != nil {
		t.Fatal(err)
	}
	if c.CheckArgs([]byte(`{"n":null}`)) != nil || c.CheckArgs([]byte(`{"n":3}`)) == nil {
		t.Errorf("the schema %s is not that of the document", c.Input)
	}
}

func FuzzOpenAPI(f *testing.F) {
	f.Add(pets)
	f.Add(`{"openapi":"3.1.0","info":{"title":"x","version":"1"},"paths":{"/a":{"get":{"parameters":[null]}}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := OpenAPI([]byte(text), SpecConfig{Server: "https://example.com"})
		if err != nil {
			return
		}
		for _, tl := range s.Tools {
			if problems := tool.Check(&tl.Manifest); len(problems) > 0 {
				t.Errorf("tool %s: %v", tl.Manifest.ID, problems)
			}
		}
	})
}

// A document of somebody else must not lead the secrets of the configuration to another host.
func TestOpenAPIPathsStayOnTheServer(t *testing.T) {
	t.Setenv("PETS", "hunter22")
	for _, path := range []string{".evil.example/x", "@evil.example/x", "{host}/x", ":99/x", "x"} {
		text := `{"openapi":"3.0.3","info":{"title":"t","version":"1"},"paths":{"/ok":{"get":{"operationId":"ok","responses":{"200":{"description":"ok"}}}},
			"` + path + `":{"get":{"operationId":"odd","parameters":[{"name":"host","in":"path","required":true,"schema":{"type":"string"}}],"responses":{"200":{"description":"ok"}}}}}}`
		s, err := OpenAPI([]byte(text), SpecConfig{Server: "https://api.example.com", Headers: map[string]string{"Authorization": "Bearer ${env:PETS}"}})
		if err != nil {
			continue // the document is refused as a whole
		}
		for _, tool := range s.Tools {
			if tool.Manifest.ID == "odd" {
				t.Errorf("the path %q became a tool, want it left out", path)
			}
		}
	}
}
