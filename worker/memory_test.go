package worker

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestMemory(t *testing.T) {
	start := time.Unix(0, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	m := newMemory[string, int](10*time.Second, 3, 100)
	known := func(s int, want ...string) {
		t.Helper()
		var got []string
		for _, k := range []string{"a", "b", "c", "d", "e"} {
			if m.get(k, at(s)) != nil {
				got = append(got, k)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("at %ds: knows %v, want %v", s, got, want)
		}
	}
	keep := func(k string, size, s int) { m.keep(m.hold(k, at(s)), size, at(s)) }

	keep("a", 1, 0)
	keep("b", 1, 1)
	keep("c", 1, 2)
	known(2, "a", "b", "c")
	keep("d", 1, 3) // one too many
	known(3, "b", "c", "d")
	keep("b", 1, 4) // newest again
	keep("e", 1, 4)
	known(4, "b", "d", "e")
	known(14, "b", "e")
	m.hold("b", at(14))
	known(100, "b") // held
	keep("a", 200, 100)
	known(100, "b") // too large by itself
	keep("b", 1, 100)
	keep("c", 100, 101)
	known(101, "c") // bytes
	m.forget(at(200))
	if len(m.items) != 0 || m.kept != 0 || m.bytes != 0 || m.oldest != nil || m.newest != nil {
		t.Errorf("after all was forgotten: %+v", m)
	}
}

// Whatever is done to it, a memory keeps its bounds and its sums.
func TestMemoryBounds(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	m := newMemory[int, int](time.Second, 20, 500)
	now := time.Unix(0, 0)
	for range 20_000 {
		now = now.Add(time.Duration(r.IntN(50)) * time.Millisecond)
		k := r.IntN(60)
		switch r.IntN(4) {
		case 0:
			m.get(k, now)
		case 1:
			m.forget(now)
		default:
			m.keep(m.hold(k, now), r.IntN(60), now)
		}
		n, bytes := 0, 0
		for it := m.oldest; it != nil; it = it.newer {
			n++
			bytes += it.size
		}
		if n != m.kept || n != len(m.items) || bytes != m.bytes || n > 20 || bytes > 500 {
			t.Fatalf("%d items of %d bytes in the list, counted %d of %d, %d in the map", n, bytes, m.kept, m.bytes, len(m.items))
		}
	}
}
