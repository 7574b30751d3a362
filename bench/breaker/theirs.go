package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

// A store is what gobreaker's replicas share. Lock and Unlock are correct: one holder at a time, none after an error.
type store interface {
	gobreaker.SharedDataStore
	drop(name string) error
}

// memory is the best store there can be: no network, and a lock that is free as soon as its holder lets go.
type memory struct {
	mu    sync.Mutex
	data  map[string][]byte
	locks map[string]chan struct{}
}

func newMemory() *memory {
	return &memory{data: map[string][]byte{}, locks: map[string]chan struct{}{}}
}

func (m *memory) place(name string) chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[name] == nil {
		m.locks[name] = make(chan struct{}, 1)
	}
	return m.locks[name]
}

func (m *memory) Lock(name string) error {
	late := time.NewTimer(time.Minute) // longer than any run, so that nothing is lost by giving up
	defer late.Stop()
	select {
	case m.place(name) <- struct{}{}:
		return nil
	case <-late.C:
		return errors.New("lock not free")
	}
}

func (m *memory) Unlock(name string) error { <-m.place(name); return nil }

func (m *memory) GetData(name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.data[name], nil
}

func (m *memory) SetData(name string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data[name] = data
	return nil
}

func (m *memory) drop(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.data, name)
	return nil
}

// shelf is a store in Redis: SET NX PX with a token to lock, compare and delete to unlock. Its lock is asked for again
// every millisecond, faster than gobreaker's own 500 ms between tries would be. It holds for 30 s, longer than any call
// here, so that what is seen is not a lock that ran out.
type shelf struct {
	db *redis.Client

	mu     sync.Mutex
	tokens map[string]string
}

var (
	tokens  atomic.Int64
	release = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)
)

func (s *shelf) Lock(name string) error {
	token := fmt.Sprint(tokens.Add(1))
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		ok, err := s.db.SetNX(context.Background(), name, token, 30*time.Second).Result()
		if err != nil {
			return err
		}
		if ok {
			s.mu.Lock()
			s.tokens[name] = token
			s.mu.Unlock()
			return nil
		}
	}
	return errors.New("lock not free")
}

func (s *shelf) Unlock(name string) error {
	s.mu.Lock()
	token := s.tokens[name]
	s.mu.Unlock()
	return release.Run(context.Background(), s.db, []string{name}, token).Err()
}

func (s *shelf) GetData(name string) ([]byte, error) {
	return s.db.Get(context.Background(), name).Bytes()
}

func (s *shelf) SetData(name string, data []byte) error {
	return s.db.Set(context.Background(), name, data, 0).Err()
}

func (s *shelf) drop(name string) error { return s.db.Del(context.Background(), name).Err() }

// flaky is a store of which a part can be away.
type flaky struct {
	store
	get, set, lock atomic.Bool
}

var errAway = errors.New("the store is away")

func (f *flaky) GetData(name string) ([]byte, error) {
	if f.get.Load() {
		return nil, errAway
	}
	return f.store.GetData(name)
}

func (f *flaky) SetData(name string, data []byte) error {
	if f.set.Load() {
		return errAway
	}
	return f.store.SetData(name, data)
}

func (f *flaky) Lock(name string) error {
	if f.lock.Load() {
		return errAway
	}
	return f.store.Lock(name)
}

// theirs is replicas with gobreaker's distributed breaker.
type theirs struct {
	spec
	id     string   // of this rig, so that what another left in the store is not found
	stores []*flaky // of each replica

	mu  sync.Mutex
	all map[string][]*gobreaker.DistributedCircuitBreaker[struct{}]
}

// theirsIn makes rigs. Open is called once for each and returns what makes the store of each replica.
func theirsIn(open func() (newStore func() store)) func(context.Context, spec) (rig, error) {
	return func(_ context.Context, s spec) (rig, error) {
		t := &theirs{spec: s, id: fmt.Sprint(tokens.Add(1)), all: map[string][]*gobreaker.DistributedCircuitBreaker[struct{}]{}}
		newStore := open()
		for range s.replicas {
			t.stores = append(t.stores, &flaky{store: newStore()})
		}
		return t, nil
	}
}

// breakers are the replicas' breakers of a key.
func (t *theirs) breakers(key string) []*gobreaker.DistributedCircuitBreaker[struct{}] {
	t.mu.Lock()
	defer t.mu.Unlock()
	if all, ok := t.all[key]; ok {
		return all
	}
	var all []*gobreaker.DistributedCircuitBreaker[struct{}]
	for i := range t.replicas {
		b, err := gobreaker.NewDistributedCircuitBreaker[struct{}](t.stores[i], gobreaker.Settings{
			Name: t.id + key, MaxRequests: 1, Timeout: t.openFor,
			ReadyToTrip: func(c gobreaker.Counts) bool { return int(c.ConsecutiveFailures) >= t.threshold },
		})
		if err != nil {
			panic(err) // nothing is away yet
		}
		all = append(all, b)
	}
	t.all[key] = all
	return all
}

func (t *theirs) call(_ context.Context, replica int, key string) said {
	_, err := t.breakers(key)[replica].Execute(func() (struct{}, error) { return struct{}{}, t.backend.serve() })
	return said{
		ok: err == nil, refused: errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests), err: err,
	}
}

func (t *theirs) recorded(_ context.Context, key string) (int, error) {
	b, err := t.stores[0].store.GetData("gobreaker:state:" + t.id + key)
	if err != nil {
		return 0, err
	}
	var s gobreaker.SharedState
	err = json.Unmarshal(b, &s)
	return int(s.Counts.TotalFailures), err
}

func (t *theirs) lose(_ context.Context, key string) error {
	return t.stores[0].drop("gobreaker:state:" + t.id + key)
}

func (t *theirs) outages() []outage {
	part := func(of func(*flaky) *atomic.Bool, v bool) func() error {
		return func() error {
			for _, s := range t.stores {
				of(s).Store(v)
			}
			return nil
		}
	}
	var all []outage
	for _, p := range []struct {
		name string
		of   func(*flaky) *atomic.Bool
	}{
		{"GET", func(s *flaky) *atomic.Bool { return &s.get }},
		{"SET", func(s *flaky) *atomic.Bool { return &s.set }},
		{"lock", func(s *flaky) *atomic.Bool { return &s.lock }},
	} {
		all = append(all, outage{p.name, part(p.of, true), part(p.of, false)})
	}
	return all
}

func (t *theirs) close() {}

// startRedis starts redis-server on a free port where it is installed. Without it the client is nil.
func startRedis(ctx context.Context) (db *redis.Client, version string, stop func(), err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, "", func() {}, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", nil, err
	}
	addr := l.Addr().(*net.TCPAddr)
	if err := l.Close(); err != nil {
		return nil, "", nil, err
	}
	dir, err := os.MkdirTemp("", "breaker-redis")
	if err != nil {
		return nil, "", nil, err
	}
	cmd := exec.Command(path, "--port", fmt.Sprint(addr.Port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir)
	if err := cmd.Start(); err != nil {
		return nil, "", nil, err
	}
	db = redis.NewClient(&redis.Options{Addr: addr.String(), PoolSize: 128})
	stop = func() {
		_ = db.Close()
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // it says how it was ended
		_ = os.RemoveAll(dir)
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err = db.Ping(ctx).Err(); err == nil {
			break
		}
		if time.Now().After(end) {
			stop()
			return nil, "", nil, fmt.Errorf("redis-server did not start: %w", err)
		}
	}
	version = "redis-server"
	if m := db.InfoMap(ctx, "server").Item("Server", "redis_version"); m != "" {
		version += " " + m
	}
	return db, version, stop, nil
}
