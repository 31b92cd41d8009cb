package local

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

// BinDirVariable names the environment variable that says where the server programs are.
const BinDirVariable = "MUXPOST_PG_BINDIR"

// Binaries are the server programs of one PostgreSQL installation.
type Binaries struct {
	// Dir holds initdb and postgres of the same build.
	Dir string
}

// Initdb returns the path of initdb.
func (b Binaries) Initdb() string { return filepath.Join(b.Dir, "initdb") }

// Postgres returns the path of postgres.
func (b Binaries) Postgres() string { return filepath.Join(b.Dir, "postgres") }

// Major returns the major version, such as 15, as the program says it.
func (b Binaries) Major(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, b.Postgres(), "--version").Output()
	if err != nil {
		return 0, fault.Wrap(fault.Unavailable, fault.ReasonDatabase, b.Postgres()+" does not tell its version", err)
	}
	m := regexp.MustCompile(`\(PostgreSQL\) (\d+)`).FindSubmatch(out)
	if m == nil {
		return 0, fault.Newf(fault.Unavailable, fault.ReasonDatabase, "%s tells a version that cannot be read: %q", b.Postgres(), out)
	}
	return strconv.Atoi(string(m[1]))
}

// Find looks for the server programs in $MUXPOST_PG_BINDIR (and then nowhere else), on the PATH, and where the distributions
// put them, newest first. When there are none it is fault.NotFound, and the error says which package to install.
func Find() (Binaries, error) {
	all, err := systemPlaces().find()
	if err != nil {
		return Binaries{}, err
	}
	return all[0], nil
}

// places says where to look.
type places struct {
	binDir string   // the operator's choice
	path   []string // the PATH
	globs  []string // directories of distributions, which have the version in their name
}

func systemPlaces() places {
	return places{
		binDir: os.Getenv(BinDirVariable),
		path:   filepath.SplitList(os.Getenv("PATH")),
		globs:  []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"},
	}
}

// find returns every installation, the preferred first, and at least one when it returns no error.
func (p places) find() ([]Binaries, error) {
	if p.binDir != "" {
		b, ok := installation(p.binDir)
		if !ok {
			return nil, fault.Newf(fault.NotFound, fault.ReasonBadConfig, "$%s is %s, which does not hold initdb and postgres",
				BinDirVariable, p.binDir).WithRemedy("set it to the directory that does, or unset it")
		}
		return []Binaries{b}, nil
	}
	var all []Binaries
	add := func(dir string) {
		if b, ok := installation(dir); ok && !slices.Contains(all, b) {
			all = append(all, b)
		}
	}
	for _, dir := range p.path {
		// An entry of the PATH is often a directory of links, and a link to one program says where its companions are.
		for _, name := range []string{"postgres", "initdb"} {
			if real, err := filepath.EvalSymlinks(filepath.Join(dir, name)); filepath.IsAbs(dir) && err == nil {
				add(filepath.Dir(real))
			}
		}
	}
	for _, glob := range p.globs {
		dirs, _ := filepath.Glob(glob)
		slices.SortFunc(dirs, func(a, b string) int { return versionIn(b) - versionIn(a) })
		for _, dir := range dirs {
			add(dir)
		}
	}
	if len(all) == 0 {
		return nil, fault.Newf(fault.NotFound, fault.ReasonBadConfig,
			"PostgreSQL's server programs (initdb and postgres) are not on the PATH and not in %s", strings.Join(p.globs, " or ")).
			WithRemedy("install them: apt-get install postgresql (Debian, Ubuntu), dnf install postgresql-server (Fedora, RHEL), " +
				"pacman -S postgresql (Arch); or set " + BinDirVariable + " to the directory that holds them; or give the URL of a database")
	}
	return all, nil
}

// installation reports whether dir holds both programs, and returns it with its links resolved.
func installation(dir string) (Binaries, bool) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Binaries{}, false
	}
	b := Binaries{Dir: real}
	for _, program := range []string{b.Initdb(), b.Postgres()} {
		info, err := os.Stat(program)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			return Binaries{}, false
		}
	}
	return b, true
}

func versionIn(dir string) int {
	n, _ := strconv.Atoi(regexp.MustCompile(`\d+`).FindString(dir))
	return n
}

// binaries returns the programs to run in this home: those that were named, else those that fit the cluster that is there.
func (h *home) binaries(ctx context.Context, named Binaries) (Binaries, error) {
	candidates := []Binaries{named}
	if named.Dir == "" {
		var err error
		if candidates, err = systemPlaces().find(); err != nil {
			return Binaries{}, err
		}
	}
	want, err := h.major()
	if err != nil || want == 0 {
		return candidates[0], err
	}
	var have []string
	for _, b := range candidates {
		major, err := b.Major(ctx)
		if err != nil {
			return Binaries{}, err
		}
		if major == want {
			return b, nil
		}
		have = append(have, fmt.Sprintf("%d in %s", major, b.Dir))
	}
	return Binaries{}, fault.Newf(fault.Invalid, fault.ReasonBadConfig,
		"the cluster in %s was made by PostgreSQL %d, and the programs found are of version %s", h.dir, want, strings.Join(have, ", ")).
		WithRemedy(fmt.Sprintf("install PostgreSQL %d beside it, or move the cluster with pg_upgrade", want))
}
