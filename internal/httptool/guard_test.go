package httptool

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
)

func TestPublic(t *testing.T) {
	for address, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1111": true, "64:ff9b::808:808": true, "2002:808:808::1": true, "::ffff:8.8.8.8": true,
		"127.0.0.1": false, "::1": false, "10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false,
		"100.64.0.1": false, "0.0.0.0": false, "::": false, "224.0.0.1": false, "255.255.255.255": false, "fe80::1": false, "fe80::1%eth0": false,
		"fc00::1": false, "fd00:ec2::254": false, "::ffff:127.0.0.1": false, "::127.0.0.1": false, "64:ff9b::7f00:1": false, "64:ff9b::a9fe:a9fe": false,
		"2002:7f00:1::": false, "2001::1": false, "ff02::1": false, "198.18.0.1": false, "64:ff9b:1::1": false,
	} {
		if got := public(netip.MustParseAddr(address)); got != want {
			t.Errorf("public(%s) = %v, want %v", address, got, want)
		}
	}
	if public(netip.Addr{}) {
		t.Error("no address is public")
	}
}

// The address counts, whatever the name was.
func TestPrivateAddressesAreRefused(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the server was asked") })
	u, _ := url.Parse(s.URL)
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]"} {
		e := openAs(t, Config{URL: "http://" + host + ":" + u.Port()}, tool.Manifest{ID: "t"})
		if _, f := ask(t, e, "{}"); f == nil || f.Kind != fault.Denied || f.Run() != fault.NotStarted || !strings.Contains(f.Message, "allow_private") {
			t.Errorf("%s: %v, want denied, not_started", host, f)
		}
	}
}

func TestRedirects(t *testing.T) {
	t.Setenv("HTTPTOOL_TEST_TOKEN", "s3cr3t-token")
	var there http.Header
	other := serve(t, func(w http.ResponseWriter, r *http.Request) { there = r.Header; fmt.Fprint(w, `"other"`) })
	hops := 0
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/near":
			http.Redirect(w, r, "/end", http.StatusTemporaryRedirect)
		case "/far":
			http.Redirect(w, r, other.URL+"/x", http.StatusFound)
		case "/ever":
			hops++
			http.Redirect(w, r, "/ever", http.StatusFound)
		case "/file":
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(302)
		default:
			fmt.Fprintf(w, `"%s %s"`, r.Method, r.Header.Get("X-Key"))
		}
	})
	cfg := Config{Method: "POST", Headers: map[string]string{"X-Key": "${env:HTTPTOOL_TEST_TOKEN}", "Authorization": "Bearer ${env:HTTPTOOL_TEST_TOKEN}"}}

	cfg.URL = s.URL + "/near"
	if got, f := ask(t, open(t, cfg), `{"a":1}`); f != nil || got != `"POST s3cr3t-token"` {
		t.Errorf("on the same host: %s, %v, want it to be followed with all its headers", got, f)
	}
	cfg.URL = s.URL + "/far"
	if _, f := ask(t, open(t, cfg), `{}`); f == nil || f.Kind != fault.Denied || f.Run() != fault.Unknown || !strings.Contains(f.Message, "allow_hosts") {
		t.Errorf("to another host: %v, want denied, unknown", f)
	}
	cfg.AllowHosts = []string{strings.TrimPrefix(other.URL, "http://")}
	if got, f := ask(t, open(t, cfg), `{}`); f != nil || got != `"other"` {
		t.Errorf("to an allowed host: %s, %v", got, f)
	}
	for name, values := range there {
		if strings.Contains(strings.Join(values, " "), "s3cr3t") || name == "Referer" || name == "Idempotency-Key" {
			t.Errorf("the other host got %s: %v", name, values)
		}
	}
	cfg.URL = s.URL + "/ever"
	if _, f := ask(t, open(t, cfg), `{}`); f == nil || f.Kind != fault.Denied || hops != maxRedirects+1 {
		t.Errorf("for ever: %v after %d requests, want denied after %d", f, hops, maxRedirects+1)
	}
	cfg.URL = s.URL + "/file"
	if _, f := ask(t, open(t, cfg), `{}`); f == nil || f.Kind != fault.Denied {
		t.Errorf("to a file: %v, want denied", f)
	}
}

// What a server repeats of our secrets does not get into a fault.
func TestSecretsAreTakenOut(t *testing.T) {
	t.Setenv("HTTPTOOL_TEST_TOKEN", "s3cr3t-token")
	for _, status := range []int{200, 302, 400, 401, 422, 500} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			secret := r.Header.Get("Authorization")
			w.Header().Set("Location", "http://"+strings.TrimPrefix(secret, "Bearer ")+".invalid/")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"title":"bad token %s","errors":[{"detail":"%s","pointer":"/%s"}]} <%s`, secret, secret, secret, secret)
		})
		e := open(t, Config{URL: s.URL, Result: "json", Headers: map[string]string{"Authorization": "Bearer ${env:HTTPTOOL_TEST_TOKEN}"}})
		_, f := ask(t, e, "{}")
		if f == nil {
			t.Fatalf("%d: no fault", status)
		}
		if said := fmt.Sprintf("%#v %v %v", *f, f.Violations, f.Unwrap()); strings.Contains(said, "s3cr3t") {
			t.Errorf("%d: the fault says %s", status, said)
		}
	}
}

// What a fault says is cut to size; a secret that is cut in two must not be left there in part.
func TestSecretsAreTakenOutBeforeTheCut(t *testing.T) {
	const secret = "hunter22hunter22hunter22hunter22"
	t.Setenv("KEY", secret)
	for name, answer := range map[string]func(w http.ResponseWriter){
		"message": func(w http.ResponseWriter) {
			w.WriteHeader(500)
			_, _ = io.WriteString(w, `{"message":"`+strings.Repeat("x", 285)+secret+`"}`)
		},
		"pointer": func(w http.ResponseWriter) {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"errors":[{"detail":"bad","pointer":"/`+strings.Repeat("x", 105)+secret+`"}]}`)
		},
		"pick": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"a":"`+strings.Repeat("x", 4080)+secret+`"}`)
		},
		"shrunk": func(w http.ResponseWriter) {
			w.WriteHeader(500)
			_, _ = io.WriteString(w, strings.Repeat(secret, 1000))
		},
	} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { answer(w) })
		e := open(t, Config{URL: s.URL, Headers: map[string]string{"X-Key": "${env:KEY}"}, Pick: "/b"})
		_, f := ask(t, e, "{}")
		if said := fmt.Sprintf("%v %s %v", f, f.Detail, f.Violations); strings.Contains(said, "hunter") {
			t.Errorf("%s: a part of the secret is in %s", name, said)
		}
	}
}
