package mcptool

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolbus/toolbus/fault"
)

// Servers that others wrote. They are fetched from the npm registry, so this is for CI: TOOLBUS_NPM=1.
func TestServersOfTheRegistry(t *testing.T) {
	if os.Getenv("TOOLBUS_NPM") == "" {
		t.Skip("SERVERS OF THE NPM REGISTRY ARE NOT TESTED: set TOOLBUS_NPM=1, which needs npx and the registry")
	}
	npx, err := exec.LookPath("npx")
	if err != nil {
		t.Skip("NO npx IN PATH: servers of the npm registry are not tested")
	}
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pkg   string
		args  []string
		calls [][3]string // tool, arguments, part of the answer
	}{
		{"@modelcontextprotocol/server-everything@2026.8.31", nil, [][3]string{
			{"echo", `{"message":"hi"}`, `"Echo: hi"`},
			{"get-sum", `{"a":2,"b":3}`, "5"},
			{"get-tiny-image", `{}`, `"type":"image"`},
			{"get-structured-content", `{"location":"New York"}`, `"temperature"`},
			{"get-sum", `{"a":"two"}`, "invalid_arguments not_started"},
			{"trigger-long-running-operation", `{"duration":0.2,"steps":2}`, "completed"},
		}},
		{"@modelcontextprotocol/server-filesystem@2026.8.31", []string{dir}, [][3]string{
			{"list_directory", `{"path":"` + dir + `"}`, `notes.txt`},
			{"read_text_file", `{"path":"` + dir + `/notes.txt"}`, `{"content":"Berlin\n`},
			{"read_text_file", `{"path":"/etc/passwd"}`, "failed done: Access denied"},
		}},
		{"@modelcontextprotocol/server-memory@2026.8.31", nil, [][3]string{
			{"create_entities", `{"entities":[{"name":"Ada","entityType":"person","observations":["wrote"]}]}`, `"Ada"`},
			{"search_nodes", `{"query":"Ada"}`, `"observations":["wrote"]`},
		}},
		{"@modelcontextprotocol/server-sequential-thinking@2026.8.31", nil, [][3]string{
			{"sequentialthinking", `{"thought":"first","nextThoughtNeeded":false,"thoughtNumber":1,"totalThoughts":1}`, `"thoughtNumber":1`},
		}},
	} {
		t.Run(strings.TrimPrefix(c.pkg, "@modelcontextprotocol/"), func(t *testing.T) {
			b := open(t, Config{
				Command:      append([]string{npx, "-y", c.pkg}, c.args...),
				Env:          []string{"MEMORY_FILE_PATH=" + t.TempDir() + "/memory.json"},
				StartTimeout: 2 * time.Minute,
			})
			t.Logf("revision %s, %d tools", b.session.mcp.InitializeResult().ProtocolVersion, len(b.Tools()))
			for _, call := range c.calls {
				got, _ := use(t.Context(), t, find(t, b, call[0]), call[1])
				if !strings.Contains(got, call[2]) {
					t.Errorf("%s(%s) = %.500s, want %s in it", call[0], call[1], got, call[2])
				}
			}
			b.Close()
			if _, f := use(t.Context(), t, find(t, b, c.calls[0][0]), c.calls[0][1]); f == nil || f.Kind != fault.Unavailable {
				t.Errorf("after Close: %v, want unavailable", f)
			}
		})
	}
}
