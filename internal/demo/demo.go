// Package demo is a handful of tools that do real work and go wrong on demand, to try Toolbus with and to test it by.
//
//	echo           gives back what it got
//	calculator     works out an expression
//	table_query    filters and sorts a table of flights that is built in
//	file_search    looks for text below one folder
//	http_fetch     fetches a page, by default only from ServePage
//	slow           takes its time, tells how far it is, and ignores its deadline if asked to
//	flaky          fails a given number of times, then goes well
//	crash          kills the process that it runs in
//
// And some to plan a trip with, whose answers are invented; see examples/trip.yaml:
//
//	flight_search  flight_cache  hotel_search  hotel_cache  weather  book_trip
//
// Their manifests are in manifests/, and are examples of manifests.
//
// crash does what it says: who runs it beside anything else loses that too. Config.Crash puts something else in its
// place, and Config.Only leaves it out or runs it in a process of its own.
package demo

import (
	"embed"
	"fmt"
	"os"
	"slices"

	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/worker"
)

// A Config describes the demo tools. The zero value runs all of them, searches the current folder and fetches nothing.
type Config struct {
	// Dir is the folder that file_search looks below. Empty means the current one.
	Dir string

	// PageURL is where ServePage serves. http_fetch may fetch from its host and takes it where no URL is given.
	PageURL string

	// AllowHosts are more hosts that http_fetch may fetch from, as host or host:port. A host alone means any port.
	AllowHosts []string

	// Crash ends the process. Nil means SIGKILL to itself.
	Crash func()

	// Only names the tools that are wanted. Empty means all.
	Only []string
}

//go:embed manifests/*.yaml
var manifests embed.FS

// Names is every demo tool there is, in the order of Tools.
func Names() []string {
	return []string{"echo", "calculator", "table_query", "file_search", "http_fetch", "slow", "flaky", "crash",
		"flight_search", "flight_cache", "hotel_search", "hotel_cache", "weather", "book_trip"}
}

// Tools is the demo tools that cfg wants. The error names what of cfg cannot be had.
func Tools(cfg Config) ([]worker.Tool, error) {
	for _, name := range cfg.Only {
		if !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("there is no demo tool %s; there are %v", name, Names())
		}
	}
	var tools []worker.Tool
	for _, name := range Names() {
		if len(cfg.Only) > 0 && !slices.Contains(cfg.Only, name) {
			continue
		}
		m, err := Manifest(name)
		if err != nil {
			return nil, err
		}
		t, err := build(cfg, *m)
		if err != nil {
			return nil, fmt.Errorf("demo tool %s: %w", name, err)
		}
		tools = append(tools, t)
	}
	return tools, nil
}

// Manifest is the manifest of one demo tool.
func Manifest(name string) (*tool.Manifest, error) {
	file := name + ".yaml"
	data, err := manifests.ReadFile("manifests/" + file)
	if err != nil {
		return nil, fmt.Errorf("there is no demo tool %s; there are %v", name, Names())
	}
	return tool.Parse(file, data)
}

func build(cfg Config, m tool.Manifest) (worker.Tool, error) {
	switch m.ID {
	case "echo":
		return worker.Tool{Manifest: m, Handler: worker.HandlerFunc(echo)}, nil
	case "calculator":
		return worker.Func(m, calculate), nil
	case "table_query":
		return worker.Func(m, queryFlights), nil
	case "file_search":
		s, err := newSearch(cfg.Dir)
		if err != nil {
			return worker.Tool{}, err
		}
		return worker.Func(m, s.run), nil
	case "http_fetch":
		f, err := newFetch(cfg)
		if err != nil {
			return worker.Tool{}, err
		}
		return worker.Func(m, f.run), nil
	case "slow":
		return worker.Func(m, slow), nil
	case "flaky":
		return worker.Func(m, flaky), nil
	case "crash":
		c := crash{now: cfg.Crash}
		if c.now == nil {
			c.now = killSelf
		}
		return worker.Func(m, c.run), nil
	case "flight_search":
		return worker.Func(m, searchFlights), nil
	case "flight_cache":
		return worker.Func(m, cachedFlights), nil
	case "hotel_search":
		return worker.Func(m, searchHotels), nil
	case "hotel_cache":
		return worker.Func(m, cachedHotels), nil
	case "weather":
		return worker.Func(m, weather), nil
	case "book_trip":
		return worker.Func(m, bookTrip), nil
	}
	return worker.Tool{}, fmt.Errorf("nothing runs it")
}

func killSelf() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {} // until the signal is there
}
