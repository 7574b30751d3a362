package httptool

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/toolbus/toolbus/fault"
)

const (
	maxRedirects = 3
	dialTimeout  = 10 * time.Second
	maxHeader    = 64 << 10 // bytes of the header of a response
	idleTime     = 90 * time.Second
	idlePerHost  = 32
)

// notPublic are the networks that are nobody's on the internet: RFC 6890 and what came after it. Those that embed an IPv4
// address are looked at through it.
var notPublic = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
	"224.0.0.0/4", "240.0.0.0/4",
	"::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10",
	"fec0::/10", "ff00::/8",
)

var (
	nat64  = netip.MustParsePrefix("64:ff9b::/96")
	sixTo4 = netip.MustParsePrefix("2002::/16")
)

func prefixes(all ...string) []netip.Prefix {
	var ps []netip.Prefix
	for _, s := range all {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

// public says whether an address is somebody's on the internet.
func public(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	switch b := a.As16(); {
	case nat64.Contains(a):
		a = netip.AddrFrom4([4]byte(b[12:]))
	case sixTo4.Contains(a):
		a = netip.AddrFrom4([4]byte(b[2:6]))
	}
	for _, p := range notPublic {
		if p.Contains(a) {
			return false
		}
	}
	return a.IsValid()
}

// newTransport is a transport that dials public addresses alone, unless private ones are allowed. It is asked about the
// address that is dialled, so a name that resolves to something else the second time gains nothing. There is no proxy:
// then the address would be that of the proxy.
func newTransport(allowPrivate bool) *http.Transport {
	d := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	if !allowPrivate {
		d.Control = func(_, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil || !public(at.Addr()) {
				return refused(fmt.Sprintf("the address %s is not a public one; set allow_private to allow it", address))
			}
			return nil
		}
	}
	return &http.Transport{
		DialContext:            d.DialContext,
		TLSHandshakeTimeout:    dialTimeout,
		MaxResponseHeaderBytes: maxHeader,
		MaxIdleConnsPerHost:    idlePerHost,
		IdleConnTimeout:        idleTime,
		ForceAttemptHTTP2:      true,
	}
}

// refused is the fault of a place that must not be asked.
func refused(why string) *fault.Fault {
	f := fault.New(fault.Denied, "%s", why)
	f.Execution = fault.NotStarted
	return f
}

// allowed are hosts: a name, for any port, or name:port.
type allowed map[string]bool

func (a allowed) has(u *url.URL) bool {
	host := strings.ToLower(u.Hostname())
	return a[host] || a[net.JoinHostPort(host, port(u))]
}

// port is where a URL leads, whether it says so or not.
func port(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "http":
		return "80"
	}
	return "443"
}

// origin is scheme, host and port.
func origin(u *url.URL) string {
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port(u))
}

// redirect decides about a redirect. What leaves the first origin takes along nothing of what the manifest said in headers:
// net/http drops only those that it knows.
func (e *endpoint) redirect(r *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case len(via) > maxRedirects:
		return refused(fmt.Sprintf("%s redirected more than %d times", first.URL.Host, maxRedirects))
	case r.URL.Scheme != "https" && r.URL.Scheme != first.URL.Scheme:
		return refused(fmt.Sprintf("%s redirected to %s, which is not encrypted", first.URL.Host, shown(r.URL)))
	case r.URL.User != nil:
		return refused(fmt.Sprintf("%s redirected to a URL with a user name in it", first.URL.Host))
	case !e.allow.has(r.URL):
		return refused(fmt.Sprintf("%s redirected to %s, which allow_hosts does not name", first.URL.Host, shown(r.URL)))
	}
	if origin(r.URL) != origin(first.URL) {
		for name := range r.Header {
			switch http.CanonicalHeaderKey(name) {
			case "Accept", "User-Agent", "Content-Type":
			default:
				delete(r.Header, name)
			}
		}
	}
	r.Header.Del("Referer") // it may hold arguments
	return nil
}

// shown is where a URL leads, for people: without what may be private in it.
func shown(u *url.URL) string { return fault.Truncate(u.Scheme+"://"+u.Host, 200) }
