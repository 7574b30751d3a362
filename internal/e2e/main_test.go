//go:build unix

package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/internal/natstest"
)

// With these variables set this program is a NATS server and no test: the only one that can be killed.
const (
	serverDir  = "TOOLBUS_E2E_DIR"
	serverPort = "TOOLBUS_E2E_PORT"
)

// bin is where the programs are built.
var bin string

func TestMain(m *testing.M) {
	if dir := os.Getenv(serverDir); dir != "" {
		os.Exit(beServer(dir))
	}
	var err error
	if bin, err = os.MkdirTemp("", "toolbus-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	natstest.Main(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(bin)
		os.Exit(code)
	}))
}

func beServer(dir string) int {
	port, err := strconv.Atoi(os.Getenv(serverPort))
	if err == nil {
		var s *bus.Server
		if s, err = bus.StartServer(bus.ServerConfig{Dir: dir, Port: port}); err == nil {
			fmt.Println("listening on", s.ClientURL())
			<-cli.Signals(context.Background()).Done()
			s.Shutdown()
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// program is the path of a program, which is built at the first use.
func program(t testing.TB, name string) string {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

var programs = sync.OnceValues(func() (string, error) {
	if err := lookAtSources(); err != nil {
		return "", err
	}
	if dir := os.Getenv("TOOLBUS_BIN"); dir != "" {
		return dir, nil
	}
	build := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "./cmd/executor", "./cmd/toolworker")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return bin, nil
})

// lookAtSources looks at every file that the programs are made of, so that `go test` sees what these results depend on
// and does not repeat old ones.
func lookAtSources() error {
	return filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "../.." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "docs"):
			return fs.SkipDir
		case d.Type().IsRegular():
			_, err = os.Stat(path)
		}
		return err
	})
}
