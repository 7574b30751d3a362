package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// A Build says what a program was built from. Commit and Time are empty outside a checkout.
type Build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`     // of the commit, RFC 3339
	Modified bool   `json:"modified,omitempty"` // there were changes that were not committed
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// BuildOf is this program's Build. An empty version means the module's own, or devel.
func BuildOf(version string) Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	b := Build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "devel"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String is one line for people.
func (b Build) String() string {
	s := b.Version
	if b.Commit != "" {
		s += fmt.Sprintf(" (%.12s, %s", b.Commit, b.Time)
		if b.Modified {
			s += ", modified"
		}
		s += ")"
	}
	return s + " " + b.Go + " " + b.Platform
}

// Version is the line of BuildOf(version).
func Version(version string) string { return BuildOf(version).String() }
