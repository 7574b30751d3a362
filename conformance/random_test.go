package conformance

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toolbus/toolbus/wire"
)

// seed is that of the environment, TOOLBUS_SEED, or a random one.
func seed(t *testing.T) uint64 {
	t.Helper()
	n := rand.Uint64N(1 << 32)
	if v := os.Getenv("TOOLBUS_SEED"); v != "" {
		given, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatalf("TOOLBUS_SEED: expected a number, got %q", v)
		}
		n = given
	}
	t.Logf("TOOLBUS_SEED=%d", n)
	return n
}

func randomly(t *testing.T, cfg Config, d time.Duration) RandomReport {
	t.Helper()
	built, err := goworker()
	if err != nil {
		t.Fatal("build the worker: ", err)
	}
	cfg.Command = []string{built}
	ctx, cancel := context.WithTimeout(t.Context(), d+time.Minute)
	defer cancel()
	r, err := Random(ctx, cfg, seed(t), d)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v, %d nacks, %d lives", r.Actions, r.Nacks, r.Lives)
	return r
}

func TestRandom(t *testing.T) {
	t.Parallel()
	if r := randomly(t, Config{}, 5*time.Second); !r.Passed() {
		t.Errorf("%s\n%s", strings.Join(r.Problems, "\n"), r.Stderr)
	}
}

// A worker that answers some calls twice is found out.
func TestRandomFindsABrokenWorker(t *testing.T) {
	t.Parallel()
	r := randomly(t, Config{out: frames(wire.ErrorFrame, twiceIf("drawn"))}, 2*time.Second)
	if r.Passed() || !strings.Contains(r.Problems[0], "after its end") {
		t.Errorf("problems = %v, want one that tells of a frame after the end", r.Problems)
	}
}
