package demo

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/toolbus/toolbus/fault"
)

func page(t *testing.T) string {
	t.Helper()
	url, stop, err := ServePage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return url
}

func TestHTTPFetch(t *testing.T) {
	page := page(t)
	for _, args := range []string{`{}`, fmt.Sprintf(`{"url":%q}`, page)} {
		got, f := call(t, Config{PageURL: page}, "http_fetch", args)
		if f != nil || !strings.Contains(got, "It works") || !strings.Contains(got, `"status":200`) {
			t.Errorf("http_fetch(%s) = %s, %v, want the page", args, got, f)
		}
	}
	for path, want := range map[string]struct {
		kind    fault.Kind
		code    string
		retryMs int64
	}{
		"status/503": {fault.Unavailable, "503", 1000},
		"status/429": {fault.RateLimited, "429", 1000},
		"status/404": {fault.NotFound, "404", 0},
		"status/500": {fault.Upstream, "500", 0},
		"nowhere":    {fault.NotFound, "404", 0},
		"loop":       {fault.Failed, "", 0},
	} {
		_, f := call(t, Config{PageURL: page}, "http_fetch", fmt.Sprintf(`{"url":%q}`, page+path))
		if f == nil || f.Kind != want.kind || f.Code != want.code || f.RetryAfterMs != want.retryMs {
			t.Errorf("%s: fault %#v, want %+v", path, f, want)
		}
	}
}

func TestHTTPFetchTimesOut(t *testing.T) {
	page := page(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, f := callCtx(ctx, t, Config{PageURL: page}, "http_fetch", fmt.Sprintf(`{"url":%q}`, page+"slow"))
	wantFault(t, "/slow", f, fault.Timeout, "")
}

func TestHTTPFetchStaysWhereItMay(t *testing.T) {
	var reached bool
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached = true
		_, _ = w.Write(make([]byte, maxBody+1))
	}))
	defer other.Close()
	away := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer away.Close()
	host := func(s string) string {
		u, _ := url.Parse(s)
		return u.Host
	}

	cfg := Config{AllowHosts: []string{host(away.URL)}}
	for u, kind := range map[string]fault.Kind{
		other.URL:                           fault.Denied,
		away.URL:                            fault.Denied, // redirects to other
		"http://169.254.169.254/":           fault.Denied,
		"file:///etc/passwd":                fault.InvalidArguments,
		"http://user:pw@" + host(away.URL):  fault.InvalidArguments,
		"http://[::1]:namedport/":           fault.InvalidArguments,
		"":                                  fault.InvalidArguments,
		"http://" + host(away.URL) + "@x.y": fault.InvalidArguments,
	} {
		_, f := call(t, cfg, "http_fetch", fmt.Sprintf(`{"url":%q}`, u))
		wantFault(t, u, f, kind, "")
		if f != nil && strings.Contains(f.Message, "pw") && kind != fault.Denied {
			t.Errorf("%s: message %q shows the password", u, f.Message)
		}
	}
	if reached {
		t.Error("a host was fetched from that was not allowed")
	}

	cfg.AllowHosts = []string{"127.0.0.1"}
	got, f := call(t, cfg, "http_fetch", fmt.Sprintf(`{"url":%q}`, away.URL))
	if f != nil || !strings.Contains(got, `"truncated":true`) || !strings.Contains(got, fmt.Sprintf("%q", other.URL)) {
		t.Errorf("http_fetch = %d bytes, %v, want what it was sent to, cut off", len(got), f)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"": 0, "soon": 0, "-1": 0, "7": 7 * time.Second, "999999": time.Hour,
		"Fri, 02 Jan 2026 03:04:15 GMT": 10 * time.Second, "Fri, 02 Jan 2026 03:04:00 GMT": 0,
	} {
		if got := retryAfter(header, now); got != want {
			t.Errorf("retryAfter(%q) = %v, want %v", header, got, want)
		}
	}
}

func TestServePageStops(t *testing.T) {
	url, stop, err := ServePage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stop()
	stop()
	_, f := call(t, Config{PageURL: url}, "http_fetch", `{}`)
	wantFault(t, "after stop", f, fault.Unavailable, "connection refused")
}
