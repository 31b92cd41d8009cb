// Package version says which build is running. A release build stamps it with the linker; any other build is described by
// what the Go toolchain recorded.
//
// It knows nothing of the services that print it, and reads nothing but the binary's own build information.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Stamped by the linker, for example: go build -ldflags "-X muxpost.dev/muxpost/internal/version.Version=v0.1.0".
// They are written by nothing else.
var (
	// Version is the release, such as "v0.1.0"; empty in an unstamped build.
	Version string
	// Commit is the full or short commit hash; empty in an unstamped build.
	Commit string
	// Dirty is "true" when the tree had changes that were not committed.
	Dirty string
)

// devel is the version of a build that nobody named.
const devel = "devel"

// shortHash is how many digits of a commit are shown to people.
const shortHash = 7

// Info describes a build.
type Info struct {
	// Version is the release, or "devel".
	Version string `json:"version"`
	// Commit is the commit hash as it was recorded; empty when it is not known.
	Commit string `json:"commit,omitempty"`
	// Dirty reports whether the tree had changes that were not committed.
	Dirty bool `json:"dirty,omitempty"`
	// Go is the version of the Go toolchain.
	Go string `json:"go"`
}

// Get returns what is known of the running binary.
func Get() Info {
	build, _ := debug.ReadBuildInfo()
	return describe(Info{Version: Version, Commit: Commit, Dirty: Dirty == "true", Go: runtime.Version()}, build)
}

// String returns the running binary's version for people, for example "v0.1.0 (abc1234)".
func String() string { return Get().String() }

// String returns the version for people: "v0.1.0 (abc1234)", "devel (abc1234, modified)", or "devel". What the version says itself
// (git's "v0.1.0-3-gabc1234-dirty", the toolchain's "v0.1.1-0.20260102150405-abc123456789+dirty") is not said again.
func (i Info) String() string {
	var notes []string
	if commit := i.Commit[:min(len(i.Commit), shortHash)]; commit != "" && !strings.Contains(i.Version, commit) {
		notes = append(notes, commit)
	}
	if i.Dirty && !strings.HasSuffix(i.Version, "dirty") {
		notes = append(notes, "modified")
	}
	if len(notes) == 0 {
		return i.Version
	}
	return fmt.Sprintf("%s (%s)", i.Version, strings.Join(notes, ", "))
}

// Release returns the release that the build was stamped with; empty when nobody stamped it.
func (i Info) Release() string {
	if i.Version == devel {
		return ""
	}
	return i.Version
}

// describe fills what the linker did not stamp. A stamped version is never mixed with the toolchain's record: that record is
// of the working tree at build time, which a release pipeline may well have exported without its history.
func describe(stamped Info, build *debug.BuildInfo) Info {
	if stamped.Version != "" || stamped.Commit != "" {
		if stamped.Version == "" {
			stamped.Version = devel
		}
		return stamped
	}
	stamped.Version = devel
	if build == nil {
		return stamped
	}
	if v := build.Main.Version; v != "" && v != "(devel)" {
		stamped.Version = v
	}
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			stamped.Commit = setting.Value
		case "vcs.modified":
			stamped.Dirty = setting.Value == "true"
		}
	}
	return stamped
}
