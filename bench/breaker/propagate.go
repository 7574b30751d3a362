package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nuid"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/wire"
)

// propagate measures the time from the ack of the write that opens a breaker to the last of the replicas that sees it:
// each has a connection of its own, follows the bucket and takes the record in as an executor does. All are in this
// process, and so on one clock. The bucket may tell the replicas before its ack has come back: that counts as 0.
func propagate(ctx context.Context, c *config, r *report) error {
	r.Head = []string{"servers", "replicas", "rounds", "from", "p50", "p99", "p99.9", "max"}
	for _, servers := range []int{1, 3} {
		if err := spreadOn(ctx, c, r, servers); err != nil {
			return fmt.Errorf("%d servers: %w", servers, err)
		}
	}
	return nil
}

// cluster starts servers with JetStream, as one cluster where there are several.
func cluster(n int) (urls []string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "breaker-nats")
	if err != nil {
		return nil, nil, err
	}
	var all []*server.Server
	stop = func() {
		for _, s := range all {
			s.Shutdown()
			s.WaitForShutdown()
		}
		_ = os.RemoveAll(dir)
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	var ports []int
	var routes []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, nil, err
		}
		defer func() { _ = l.Close() }() // closed below already
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		routes = append(routes, "nats-route://"+l.Addr().String())
		if err := l.Close(); err != nil {
			return nil, nil, err
		}
	}
	for i, port := range ports {
		o := &server.Options{
			ServerName: fmt.Sprint("n", i), Host: "127.0.0.1", Port: -1, JetStream: true, NoSigs: true, NoLog: true,
			StoreDir: filepath.Join(dir, fmt.Sprint(i)), JetStreamMaxStore: 4 << 30, JetStreamMaxMemory: 256 << 20,
		}
		if n > 1 {
			o.Cluster = server.ClusterOpts{Name: "breaker", Host: "127.0.0.1", Port: port}
			o.Routes = server.RoutesFromStr(strings.Join(routes, ","))
		}
		s, err := server.NewServer(o)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, s)
		s.Start()
	}
	ready := func() bool {
		led := n == 1
		for _, s := range all {
			if !s.ReadyForConnections(time.Second) {
				return false
			}
			led = led || s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == n
		}
		return led
	}
	for end := time.Now().Add(30 * time.Second); !ready(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return nil, nil, fmt.Errorf("not ready within 30 s")
		}
	}
	for _, s := range all {
		urls = append(urls, s.ClientURL())
	}
	return urls, stop, nil
}

// A sight is when a replica saw a revision.
type sight struct {
	rev uint64
	at  time.Time
}

func spreadOn(ctx context.Context, c *config, r *report, servers int) error {
	replicas, rounds := 32, 1000
	if c.n > 0 {
		replicas = c.n
	}
	if c.rounds > 0 {
		rounds = c.rounds
	}
	urls, stop, err := cluster(servers)
	if err != nil {
		return err
	}
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	var followers sync.WaitGroup
	defer followers.Wait()
	defer cancel()
	open := func(i int) (*bus.Conn, *kvstate.Bucket, error) {
		conn, err := bus.Connect(ctx, bus.Config{URL: urls[i%len(urls)]})
		if err != nil {
			return nil, nil, err
		}
		b, err := kvstate.Open(ctx, conn, kvstate.Config{Bucket: bucketName, Replicas: servers})
		return conn, b, err
	}
	conn, writer, err := open(0)
	if err != nil {
		return err
	}
	defer conn.Close()

	saw := make(chan sight, 64*replicas)
	synced := make(chan struct{}, replicas)
	for i := range replicas {
		conn, b, err := open(i)
		if err != nil {
			return err
		}
		followers.Go(func() {
			defer conn.Close()
			follow(ctx, b, saw, synced)
		})
	}
	for range replicas {
		<-synced
	}
	return measure(ctx, c, r, writer, saw, servers, replicas, rounds)
}

// follow takes records in as an executor does.
func follow(ctx context.Context, b *kvstate.Bucket, saw chan<- sight, synced chan<- struct{}) {
	var seen atomic.Pointer[breaker.Seen]
	seen.Store(&breaker.Seen{})
	first := true
	_ = b.Follow(ctx, func(u kvstate.Update) { // the rounds end without what was not seen
		switch {
		case u.Synced && first:
			first = false
			synced <- struct{}{}
		case u.Synced || u.Deleted:
		default:
			var v breaker.Shared
			if wire.Decode(u.Value, &v) != nil {
				return
			}
			v, _ = v.Sane()
			now := time.Now()
			seen.Store(seen.Load().Next(now, v, u.Revision))
			select {
			case saw <- sight{u.Revision, now}:
			case <-ctx.Done():
			}
		}
	})
}

func measure(ctx context.Context, c *config, r *report, b *kvstate.Bucket, saw <-chan sight, servers, replicas, rounds int) error {
	dice := rand.New(rand.NewPCG(c.seed, 1))
	var acked, sent, wrote []time.Duration
	var rev uint64
	for end := time.Now().Add(c.most); len(acked) < rounds && time.Now().Before(end); {
		v := breaker.Shared{V: breaker.SharedVersion, State: breaker.Open.String(), HoldMs: 30_000, Why: "5 failures in a row", Nonce: nuid.Next()}
		body, err := wire.Marshal(wire.MsgPack, &v)
		if err != nil {
			return err
		}
		began := time.Now()
		var next uint64
		if rev == 0 {
			next, err = b.Create(ctx, toolName, body)
		} else {
			next, err = b.Update(ctx, toolName, body, rev)
		}
		ack := time.Now()
		if err != nil {
			return err
		}
		rev = next
		var latest time.Time
		late := time.NewTimer(20 * time.Second)
		for n := 0; n < replicas; {
			select {
			case s := <-saw:
				if s.rev != rev {
					continue
				}
				n++
				if s.at.After(latest) {
					latest = s.at
				}
			case <-late.C:
				return fmt.Errorf("revision %d was seen by %d of %d replicas", rev, n, replicas)
			}
		}
		late.Stop()
		acked, sent, wrote = append(acked, max(0, latest.Sub(ack))), append(sent, latest.Sub(began)), append(wrote, ack.Sub(began))
		time.Sleep(time.Duration(dice.Int64N(int64(10 * time.Millisecond)))) // not in step with anything
	}
	two := func(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000) }
	for _, of := range []struct {
		name string
		all  []time.Duration
	}{{"ack to the last", acked}, {"sending to the last", sent}, {"sending to the ack", wrote}} {
		r.add(fmt.Sprint(servers), fmt.Sprint(replicas), fmt.Sprint(len(of.all)), of.name,
			two(at(50, of.all)), two(at(99, of.all)), two(at(99.9, of.all)), two(at(100, of.all)))
	}
	return nil
}
