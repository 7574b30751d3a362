package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/toolbus/toolbus/fault"
)

const (
	maxRedirects = 3
	maxBody      = 1 << 20 // bytes; the rest is cut off
)

type fetchArgs struct {
	URL string `json:"url"`
}

type fetchResult struct {
	URL         string `json:"url"` // after redirects
	Status      int    `json:"status"`
	ContentType string `json:"content_type"`
	Body        string `json:"body"`
	Truncated   bool   `json:"truncated"`
}

// A fetch fetches from hosts that it was given, and from nowhere else: what a model asks for must not reach into the
// network that a worker happens to be in.
type fetch struct {
	page   string
	allow  map[string]bool // host, or host:port
	client *http.Client
}

func newFetch(cfg Config) (*fetch, error) {
	f := &fetch{page: cfg.PageURL, allow: map[string]bool{}}
	if cfg.PageURL != "" {
		u, err := url.Parse(cfg.PageURL)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("page URL %q: expected http://host:port/", cfg.PageURL)
		}
		f.allow[strings.ToLower(u.Host)] = true
	}
	for _, host := range cfg.AllowHosts {
		f.allow[strings.ToLower(host)] = true
	}
	f.client = &http.Client{
		// No proxy from the environment, and no connection that outlives its call.
		Transport: &http.Transport{DisableKeepAlives: true, ResponseHeaderTimeout: 30 * time.Second, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return fault.New(fault.Failed, "more than %d redirects", maxRedirects)
			}
			if err := f.check(r.URL); err != nil {
				return err
			}
			return nil
		},
	}
	return f, nil
}

// check is a fault where we may not fetch from u, else nil.
func (f *fetch) check(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return invalid("/url", "an http or https URL", strconv.Quote(u.Redacted()))
	}
	if u.User != nil {
		return invalid("/url", "a URL without a user name", strconv.Quote(u.Redacted()))
	}
	if !f.allow[strings.ToLower(u.Host)] && !f.allow[strings.ToLower(u.Hostname())] {
		return fault.New(fault.Denied, "this tool may not fetch from %s", fault.Truncate(u.Host, 100))
	}
	return nil
}

func (f *fetch) run(ctx context.Context, args fetchArgs) (fetchResult, error) {
	if args.URL == "" {
		args.URL = f.page
	}
	u, err := url.Parse(args.URL)
	if err != nil {
		return fetchResult{}, invalid("/url", "an http or https URL", strconv.Quote(args.URL))
	}
	if err := f.check(u); err != nil {
		return fetchResult{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fetchResult{}, err
	}
	req.Header.Set("User-Agent", "toolbus-demo")
	resp, err := f.client.Do(req)
	if err != nil {
		return fetchResult{}, err
	}
	defer resp.Body.Close()
	if kind := fault.FromHTTP(resp.StatusCode); kind != "" {
		return fetchResult{}, statusFault(kind, resp)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return fetchResult{}, fmt.Errorf("read %s: %w", u.Redacted(), err)
	}
	return fetchResult{
		URL:         resp.Request.URL.Redacted(),
		Status:      resp.StatusCode,
		ContentType: resp.Header.Get("Content-Type"),
		Body:        strings.ToValidUTF8(string(body[:min(len(body), maxBody)]), "\uFFFD"),
		Truncated:   len(body) > maxBody,
	}, nil
}

func statusFault(kind fault.Kind, resp *http.Response) *fault.Fault {
	f := fault.New(kind, "%s answered %s", resp.Request.URL.Host, resp.Status)
	f.Code = strconv.Itoa(resp.StatusCode)
	f.RetryAfterMs = retryAfter(resp.Header.Get("Retry-After"), time.Now()).Milliseconds()
	if detail, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10)); err == nil {
		f.Detail = strings.ToValidUTF8(string(detail), "\uFFFD")
	}
	return f
}

// maxRetryAfter bounds what a server may ask for.
const maxRetryAfter = time.Hour

// retryAfter reads the header of RFC 9110 §10.2.3, seconds or a date; zero where it says nothing that we understand.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(max(0, at.Sub(now)), maxRetryAfter)
	}
	return 0
}
