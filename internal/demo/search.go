package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/worker"
)

// Bounds of one search. What is beyond them is left out, and the result says so.
const (
	maxFiles       = 20_000
	maxFileBytes   = 4 << 20
	maxSearchBytes = 128 << 20
	maxMatchLine   = 300 // bytes of a line that are shown
	defaultMatches = 50
	maxMatches     = 500
	maxQuery       = 1000 // bytes
)

type searchArgs struct {
	Query      string `json:"query"`
	Regexp     bool   `json:"regexp"`
	IgnoreCase bool   `json:"ignore_case"`
	Path       string `json:"path"`
	Name       string `json:"name"`
	Limit      int    `json:"limit"`
}

type match struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

type searchResult struct {
	Matches   []match `json:"matches"`
	Files     int     `json:"files"` // that were read
	Bytes     int64   `json:"bytes"`
	Truncated bool    `json:"truncated"` // there is more than was looked at, or more matches than were asked for
}

// A search looks below one folder. It follows no link out of it, and reads nothing whose name begins with a dot.
type search struct{ dir string }

func newSearch(dir string) (search, error) {
	if dir == "" {
		dir = "."
	}
	info, err := os.Stat(dir)
	if err != nil {
		return search{}, err
	}
	if !info.IsDir() {
		return search{}, fmt.Errorf("%s is not a folder", dir)
	}
	return search{dir: dir}, nil
}

// errEnough ends a walk early.
var errEnough = errors.New("enough")

func (s search) run(ctx context.Context, args searchArgs) (searchResult, error) {
	pattern, err := compile(args)
	if err != nil {
		return searchResult{}, err
	}
	if _, err := path.Match(args.Name, ""); err != nil {
		return searchResult{}, invalid("/name", "a pattern such as *.go", strconv.Quote(args.Name))
	}
	start := path.Clean(args.Path)
	if !fs.ValidPath(start) || start != "." && strings.Contains("/"+start, "/.") {
		return searchResult{}, invalid("/path", "a folder below the one that is searched, without .. or hidden ones", strconv.Quote(args.Path))
	}
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return searchResult{}, err
	}
	defer root.Close()

	w := walk{root: root, pattern: pattern, name: args.Name, limit: min(args.Limit, maxMatches)}
	w.found.Matches = []match{}
	if w.limit <= 0 {
		w.limit = defaultMatches
	}
	err = fs.WalkDir(root.FS(), start, func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		return w.visit(ctx, start, path, d, err)
	})
	switch {
	case errors.Is(err, errEnough):
		w.found.Truncated = true
	case errors.Is(err, fs.ErrNotExist):
		return searchResult{}, fault.New(fault.NotFound, "there is no folder %s", fault.Truncate(args.Path, 200))
	case err != nil:
		return searchResult{}, err
	}
	return w.found, nil
}

func compile(args searchArgs) (*regexp.Regexp, error) {
	if args.Query == "" || len(args.Query) > maxQuery {
		return nil, invalid("/query", fmt.Sprintf("1 to %d bytes long", maxQuery), fmt.Sprintf("%d bytes", len(args.Query)))
	}
	text := args.Query
	if !args.Regexp {
		text = regexp.QuoteMeta(text)
	}
	if args.IgnoreCase {
		text = "(?i)" + text
	}
	pattern, err := regexp.Compile(text)
	if err != nil {
		return nil, invalid("/query", "an RE2 regular expression", err.Error())
	}
	return pattern, nil
}

// A walk is one search under way.
type walk struct {
	root    *os.Root
	pattern *regexp.Regexp
	name    string
	limit   int
	found   searchResult
}

func (w *walk) visit(ctx context.Context, start, name string, d fs.DirEntry, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && name == start:
		return err
	case err != nil:
		return nil // a folder that we may not read, or that has just gone
	case name != start && strings.HasPrefix(d.Name(), "."):
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	case !d.Type().IsRegular():
		return nil
	}
	if w.name != "" {
		if ok, _ := path.Match(w.name, d.Name()); !ok {
			return nil
		}
	}
	if w.found.Files >= maxFiles || w.found.Bytes >= maxSearchBytes {
		return errEnough
	}
	if w.found.Files%100 == 0 {
		worker.Progress(ctx, float64(w.found.Files), 0, fmt.Sprintf("%d files, %d matches", w.found.Files, len(w.found.Matches)))
	}
	return w.file(name)
}

// file looks through one file. One that cannot be read, or holds no text, is passed over.
func (w *walk) file(name string) error {
	f, err := w.root.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil
	}
	if len(data) > maxFileBytes {
		w.found.Truncated = true
		data = data[:maxFileBytes]
	}
	w.found.Files++
	w.found.Bytes += int64(len(data))
	if bytes.IndexByte(data[:min(len(data), 8<<10)], 0) >= 0 {
		return nil
	}
	for n := 1; len(data) > 0; n++ {
		line := data
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			line, data = data[:i], data[i+1:]
		} else {
			data = nil
		}
		at := w.pattern.FindIndex(line)
		if at == nil {
			continue
		}
		if len(w.found.Matches) == w.limit {
			return errEnough
		}
		w.found.Matches = append(w.found.Matches, match{Path: name, Line: n, Text: around(line, at[0])})
	}
	return nil
}

// around is a line, or where it is long the part of it that begins a little before the match.
func around(line []byte, at int) string {
	from := 0
	if len(line) > maxMatchLine {
		from = max(0, at-maxMatchLine/4)
		for from > 0 && !utf8.RuneStart(line[from]) {
			from--
		}
	}
	text := strings.ToValidUTF8(string(line[from:]), "\uFFFD")
	return fault.Truncate(strings.TrimRight(text, "\r"), maxMatchLine)
}
