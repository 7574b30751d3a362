package collector_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const root = "../../.."

// spawn runs a program until the test ends, and for ten seconds at most after that.
func spawn(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, name, args...)
	var said record
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = env, &said, &said, 10*time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		stop()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		err := cmd.Wait()
		if t.Failed() {
			t.Logf("%s %v: %v\n%s", name, args, err, &said)
		}
	})
}

// program is one of ours: what variable names, or else built for the test.
func program(t *testing.T, variable, name string) string {
	t.Helper()
	if path := os.Getenv(variable); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), name)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/"+name)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// A fleet is an executor with NATS in its process, and workers around it.
type fleet struct {
	executor string   // the program
	nats     int      // the port
	metrics  string   // where the executor serves /metrics and /readyz
	env      []string // of every program
}

// newFleet is one without programs. What they will have to tell goes to the collector at once, by HTTP where their
// variables do not say otherwise.
func newFleet(t *testing.T, c *collecting) *fleet {
	t.Helper()
	f := &fleet{executor: program(t, "TOOLBUS_TEST_EXECUTOR", "executor"), nats: freePorts(t, 1)[0], metrics: freePort(t)}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "OTEL_") && !strings.HasPrefix(v, "TOOLBUS_") {
			f.env = append(f.env, v)
		}
	}
	f.env = append(f.env,
		fmt.Sprint("TOOLBUS_NATS_URL=nats://127.0.0.1:", f.nats), "XDG_DATA_HOME="+t.TempDir(),
		"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+c.http,
		"OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_BLRP_SCHEDULE_DELAY=50", "OTEL_METRIC_EXPORT_INTERVAL=200")
	return f
}

// serve starts the executor, with variables of its own, and NATS in it.
func (f *fleet) serve(t *testing.T, env ...string) {
	t.Helper()
	spawn(t, append(f.env, env...), f.executor, "serve", "--embedded", "--port", fmt.Sprint(f.nats), "--store-dir", t.TempDir(), "--metrics-addr", f.metrics)
	await(t, "the executor is ready", func() bool { return strings.HasPrefix(get(t, "http://"+f.metrics+"/readyz"), "ready") })
}

// run runs a command of executor to its end, and is what it prints.
func (f *fleet) run(t *testing.T, input string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), f.executor, args...)
	cmd.Env, cmd.Stdin = append(f.env, "OTEL_SDK_DISABLED=true"), strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("executor %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// golang starts a worker in Go with the tool echo, with variables of its own.
func (f *fleet) golang(t *testing.T, env ...string) {
	t.Helper()
	spawn(t, append(f.env, env...), program(t, "TOOLWORKER", "toolworker"), "demo", "--only", "echo")
}

// python starts a worker with the Python SDK and the tool echo_python, or says why not. PYTHON names the interpreter.
func (f *fleet) python(t *testing.T) (why string) {
	t.Helper()
	interpreter := os.Getenv("PYTHON")
	if interpreter == "" {
		interpreter = "python3"
	}
	env := append(f.env, "PYTHONPATH="+filepath.Join(root, "sdk", "python", "src"), "OTEL_SERVICE_NAME=python")
	check := exec.CommandContext(t.Context(), interpreter, "-c", "import toolbus, opentelemetry.exporter.otlp.proto.http")
	check.Env = env
	if out, err := check.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Sprintf("NO PYTHON: %s (PYTHON=%s) has not what it takes; ci.sh installs it: %s", interpreter, os.Getenv("PYTHON"), lines[len(lines)-1])
	}
	spawn(t, env, interpreter, filepath.Join(root, "otel", "testdata", "worker.py"))
	return ""
}

// typescript starts a worker with the TypeScript SDK and the tool echo_typescript, or says why not. NODE_MODULES names
// the folder of what it imports.
func (f *fleet) typescript(t *testing.T) (why string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		return "NO TYPESCRIPT: there is no node"
	}
	modules, err := filepath.Abs(os.Getenv("NODE_MODULES"))
	if err != nil {
		t.Fatal(err)
	}
	for _, need := range []string{"toolbus/dist/index.js", "toolbus/node_modules", "@opentelemetry/exporter-trace-otlp-proto"} {
		if _, err := os.Stat(filepath.Join(modules, need)); err != nil {
			return fmt.Sprintf("NO TYPESCRIPT: NODE_MODULES=%s has not what it takes; ci.sh installs it: %v", os.Getenv("NODE_MODULES"), err)
		}
	}
	dir := t.TempDir() // node looks for modules beside the file that imports them
	source, err := os.ReadFile(filepath.Join("testdata", "worker.mjs"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "worker.mjs"), source, 0o600)
	}
	if err == nil {
		err = os.Symlink(modules, filepath.Join(dir, "node_modules"))
	}
	if err != nil {
		t.Fatal(err)
	}
	spawn(t, append(f.env, "OTEL_SERVICE_NAME=typescript"), node, filepath.Join(dir, "worker.mjs"))
	return ""
}

// turn runs one with a call of each tool, once all of them are served, and returns the id of its trace.
func (f *fleet) turn(t *testing.T, tools ...string) (trace string) {
	t.Helper()
	plan := "deadline: 20s\ncalls:\n"
	for _, name := range tools {
		plan += fmt.Sprintf("  - {id: %s, tool: %s, args: {}}\n", name, name)
		await(t, name+" is served", func() bool {
			return strings.Contains(get(t, "http://"+f.metrics+"/metrics"), fmt.Sprintf("toolbus_workers{tool=%q} 1\n", name))
		})
	}
	f.run(t, plan, "turn", "run", "--quiet", "--turn", "abroad", "-")
	return strings.TrimSpace(f.run(t, "", "trace", "abroad", "--otel"))
}
