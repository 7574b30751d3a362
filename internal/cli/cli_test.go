package cli

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

const asProgram = "CLI_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		runAsProgram()
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("os/signal.loop"))
}

// runAsProgram drains for ever.
func runAsProgram() {
	ctx := Signals(context.Background())
	os.Stdout.WriteString("ready\n")
	<-ctx.Done()
	if context.Cause(ctx) == ErrSignal {
		os.Stdout.WriteString("drain\n")
	}
	select {}
}

func TestSignals(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 64)
	for _, step := range []struct {
		says string
		then os.Signal
	}{{"ready\n", syscall.SIGTERM}, {"drain\n", os.Interrupt}} {
		n, _ := out.Read(line)
		if got := string(line[:n]); got != step.says {
			t.Fatalf("the program said %q, want %q", got, step.says)
		}
		if err := cmd.Process.Signal(step.then); err != nil {
			t.Fatal(err)
		}
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != ExitInterrupted {
		t.Errorf("exit code %d after the second signal, want %d", got, ExitInterrupted)
	}
}

func TestSignalsEndsWithItsParent(t *testing.T) {
	parent, cancel := context.WithCancel(t.Context())
	ctx := Signals(parent)
	cancel()
	<-ctx.Done()
	if got := context.Cause(ctx); got != context.Canceled {
		t.Errorf("cause %v, want the parent's", got)
	}
}

func TestLogger(t *testing.T) {
	var b bytes.Buffer
	log, err := Logger(&b, "warn", "json")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("hidden")
	log.Warn("seen")
	if got := b.String(); strings.Contains(got, "hidden") || !strings.Contains(got, `"msg":"seen"`) {
		t.Errorf("the log says %s, want the warning alone, as JSON", got)
	}
	for _, tc := range [][3]string{
		{"loud", "", `log level "loud": expected debug, info, warn or error`},
		{"", "xml", `log format "xml": expected text or json`},
	} {
		if _, err := Logger(&b, tc[0], tc[1]); err == nil || err.Error() != tc[2] {
			t.Errorf("Logger(%q, %q) = %v, want %s", tc[0], tc[1], err, tc[2])
		}
	}
}

func TestVersion(t *testing.T) {
	b := Build{Version: "1.2.3", Commit: "0123456789abcdef", Time: "2026-01-02T03:04:05Z", Modified: true, Go: "go1.26", Platform: "plan9/arm"}
	if got, want := b.String(), "1.2.3 (0123456789ab, 2026-01-02T03:04:05Z, modified) go1.26 plan9/arm"; got != want {
		t.Errorf("String() = %s, want %s", got, want)
	}
	if got := Version("1.2.3"); !strings.HasPrefix(got, "1.2.3 ") || !strings.Contains(got, "go1.") {
		t.Errorf("Version = %s, want the version and Go's", got)
	}
	if got := BuildOf("").Version; got == "" {
		t.Error("a build without a version has none, want devel")
	}
}

func TestPrintJSON(t *testing.T) {
	var b bytes.Buffer
	if err := PrintJSON(&b, map[string]string{"q": "a<b"}); err != nil || b.String() != "{\n  \"q\": \"a<b\"\n}\n" {
		t.Errorf("PrintJSON wrote %s, %v", b.String(), err)
	}
}
