package mcptool

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const maxRedirects = 3

// checkURL says what is wrong with a URL, and gives its host.
func checkURL(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", fmt.Errorf("mcp: url: %w", errors.Unwrap(err)) // without the URL, which may hold a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", fmt.Errorf("mcp: url: expected http://HOST/PATH or https://HOST/PATH, got %q", clip(u.Redacted()))
	case u.User != nil:
		return "", errors.New("mcp: url: it has a user or a password; give them as a header, Authorization: Basic …")
	}
	return u.Host, nil
}

// web is the way to a server over HTTP. Requests have no time limit of their own: a call's is that of its context.
func (b *Bridge) web() mcp.Transport {
	return &mcp.StreamableClientTransport{
		Endpoint:     b.cfg.URL,
		MaxEventSize: maxMessage,
		HTTPClient: &http.Client{
			Transport:     &road{header: b.header, under: b.http},
			CheckRedirect: sameHost,
		},
	}
}

// sameHost refuses redirects that lead away: what we send may hold secrets, and the server was chosen by people.
func sameHost(r *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("it redirected more than %d times", maxRedirects)
	case r.URL.Scheme != first.Scheme || r.URL.Host != first.Host:
		return fmt.Errorf("it redirects to %s://%s; use that URL if you trust it", clip(r.URL.Scheme), clip(r.URL.Host))
	}
	return nil
}

// A road adds our headers to requests, notes for a call what became of its request, and bounds what comes back.
type road struct {
	header map[string]string
	under  http.RoundTripper
}

func (r *road) RoundTrip(req *http.Request) (*http.Response, error) {
	f := flightOf(req.Context())
	ctx := req.Context()
	if f != nil {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { f.sent.Store(true) }})
	}
	req = req.Clone(ctx)
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	resp, err := r.under.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if f != nil && req.Method == http.MethodPost { // others go on with an answer that had begun
		f.status.Store(int64(resp.StatusCode))
		f.after.Store(int64(retryAfter(resp.Header.Get("Retry-After"), time.Now())))
	}
	if resp.Header.Get("Content-Type") != "text/event-stream" { // the SDK bounds events one by one
		resp.Body = &bounded{resp.Body, maxMessage}
	}
	return resp, nil
}

// bounded fails where there is more to read.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the server sent more than %d bytes", maxMessage)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// retryAfter reads the header of that name: seconds, or a date. Zero means that it does not say.
func retryAfter(v string, now time.Time) time.Duration {
	const most = 24 * time.Hour
	if n, err := strconv.ParseUint(v, 10, 31); err == nil {
		return min(time.Duration(n)*time.Second, most)
	}
	if at, err := http.ParseTime(v); err == nil && at.After(now) {
		return min(at.Sub(now), most)
	}
	return 0
}
