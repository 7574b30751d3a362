package natstest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// The systems that this runs on give connections, and listeners that ask for port 0, a port from 32768 upwards (Linux) or
// 49152 (RFC 6335). A port below is nobody's but the one's who asks for it by number.
const lowestPort, portEnd = 12000, 32000

// FreePorts are n ports of 127.0.0.1 that were free a moment ago, for a server whose port must be known before it starts,
// or that stops and comes back at the same one: no connection and no other listener takes it meanwhile.
func FreePorts(t testing.TB, n int) []int {
	t.Helper()
	ports := make([]int, 0, n)
	for range 100 * n {
		port := lowestPort + rand.IntN(portEnd-lowestPort)
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			continue
		}
		defer l.Close() // at the end, so that no two are the same
		if ports = append(ports, port); len(ports) == n {
			return ports
		}
	}
	t.Fatalf("natstest: no %d free ports between %d and %d", n, lowestPort, portEnd)
	return nil
}

// FreePort is one of FreePorts.
func FreePort(t testing.TB) int {
	t.Helper()
	return FreePorts(t, 1)[0]
}
