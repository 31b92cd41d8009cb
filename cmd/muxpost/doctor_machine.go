package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"muxpost.dev/muxpost/cmd/muxpost/internal/stack"
	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/db/local"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/internal/version"
)

// Free space below which a person is warned, and below which events could be lost to a full disk, in bytes.
const (
	littleSpace = 1 << 30
	noSpace     = 100 << 20
)

// indented puts the lines of a text below each other.
func indented(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = view.Clean(l)
	}
	return strings.Join(lines, "\n"+strings.Repeat(" ", 21))
}

// shell says whether what is started from here would end with an agent.
func (d *doctor) shell(context.Context) {
	const check = "shell"
	if stack.InSession(d.app.environ) {
		d.add(check, levelWarn, "this runs inside an agent's session, and what is started here ends with it", "run muxpost up in a shell of your own")
		return
	}
	d.ok(check, "it is not inside an agent's session")
}

func (d *doctor) programs(ctx context.Context) {
	const check = "programs"
	d.ok(check, "muxpost %s in %s", version.String(), d.stack.BinDir)
	for _, service := range d.here() {
		path := d.stack.Binary(service)
		if !stack.IsProgram(path) {
			d.add(check, levelFail, path+" is not there", "install all programs of this release into one directory")
			continue
		}
		v, err := stack.VersionOf(ctx, path)
		switch {
		case err != nil:
			d.err(check, levelFail, err)
		case v != version.String():
			d.add(check, levelWarn, fmt.Sprintf("%s is %s, and muxpost is %s", service.Binary(), v, version.String()),
				"install the same release of all")
		}
		if found := stack.Find(d.DataDir, service); found.Life == stack.Running && err == nil && found.Version != v {
			d.add(check, levelWarn, fmt.Sprintf("%s runs as %s, and %s is installed", service, found.Version, v),
				"muxpost down && muxpost up; agents stay alive")
		}
	}
}

func (d *doctor) tmux(ctx context.Context) {
	if !d.Here(layout.Tmuxd) {
		d.ok("tmux", "none is needed: agents are on other hosts")
		return
	}
	text, err := stack.Tmux(ctx, d.Tmuxd.Tmux)
	if err != nil {
		d.err("tmux", levelFail, err)
		return
	}
	d.ok("tmux", "%s", text)
}

func (d *doctor) postgresPrograms(ctx context.Context) {
	const check = "postgres"
	if database, err := d.Database(); !d.Here(layout.Dispatcher) && !d.Here(layout.Poller) {
		d.ok(check, "none is needed: the dispatcher is elsewhere")
		return
	} else if err != nil || !database.Local() {
		d.ok(check, "no local one is needed: the database is named")
		return
	}
	bin, err := local.Find()
	if err != nil {
		d.err(check, levelFail, err)
		return
	}
	major, err := bin.Major(ctx)
	if err != nil {
		d.err(check, levelFail, err)
		return
	}
	d.ok(check, "PostgreSQL %d in %s", major, bin.Dir)
}

func (d *doctor) config(context.Context) {
	const check = "config"
	valuesErr := d.Check()
	if len(d.here()) < len(layout.Services()) {
		valuesErr = d.Check(d.here()...)
	} else if !d.Found {
		valuesErr = d.Check(layout.Tmuxd, layout.Poller) // what a first session runs says the file that muxpost up writes
	}
	switch {
	case d.configErr != nil:
		// What could not be read is not there, and would be missed for no other reason.
		d.err(check, levelFail, d.configErr)
	case valuesErr != nil:
		d.err(check, levelFail, valuesErr)
	case !d.Found:
		d.ok(check, "there is no %s yet; muxpost up writes one", d.File)
	default:
		d.ok(check, "every key and value in %s can be used", d.File)
	}
	for _, s := range d.Poller.Sources {
		if len(s.Authors) == 0 {
			d.add(check, levelWarn, fmt.Sprintf("the source %s names no authors, so nobody's comments reach an agent", s.Name),
				"list the logins that may steer under authors")
		}
	}
}

// harnesses looks for the programs that agents run. The one for first sessions must be there.
func (d *doctor) harnesses(context.Context) {
	const check = "harnesses"
	if d.StandsIn() {
		d.add(check, levelWarn, "sources are read, and dispatcher.harness is "+settings.StandIn+", which only stands in for an agent",
			"set dispatcher.harness to another one; a work item that has the stand-in already keeps it until muxpost close ITEM")
	}
	if !d.Here(layout.Tmuxd) {
		d.ok(check, "they are on other hosts; muxpost harnesses lists them")
		return
	}
	bundled := settings.BuiltinHarnesses()
	for _, name := range d.HarnessNames() {
		entry := d.Tmuxd.Harnesses[name]
		words := strings.Fields(entry.Binary)
		if len(words) == 0 {
			continue // the check of the configuration says so
		}
		level := levelWarn
		if name == d.Dispatcher.Harness {
			level = levelFail
		}
		path, err := findProgram(words[0], d.stack.BinDir)
		_, isBundled := bundled[name]
		switch {
		case err == nil:
			d.ok(check, "%s is %s", name, path)
		case !isBundled || level == levelFail:
			d.add(check, level, fmt.Sprintf("the program of %s, %q, was not found", name, words[0]),
				"install it where tmuxd finds it on its PATH, or write its path as tmuxd.harnesses."+name+".binary")
		}
		if level == levelFail && len(entry.Unmeasured) > 0 {
			d.add(check, levelWarn, fmt.Sprintf("of %s these were never tried on the real program: %s", name, strings.Join(entry.Unmeasured, ", ")),
				"watch its first deliveries, as docs/harnesses.md says")
		}
	}
}

// findProgram looks where tmuxd does: on the PATH, then beside the programs of this release.
func findProgram(name, binDir string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil || filepath.Base(name) != name {
		return path, err
	}
	return exec.LookPath(filepath.Join(binDir, name))
}

func (d *doctor) dataDir(context.Context) {
	const check = "data directory"
	info, err := os.Stat(string(d.DataDir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.ok(check, "%s is not there yet; muxpost up makes it", d.DataDir)
		return
	case err != nil:
		d.err(check, levelFail, err)
		return
	case !info.IsDir():
		d.add(check, levelFail, string(d.DataDir)+" is not a directory", "name another with --data-dir")
		return
	}
	_, err = os.Stat(d.DataDir.RunDir())
	d.begun = err == nil
	probe, err := os.CreateTemp(string(d.DataDir), ".doctor-*")
	if err != nil {
		d.add(check, levelFail, "this user cannot write to "+string(d.DataDir)+": "+err.Error(),
			"run muxpost as the user whose services these are, or name another with --data-dir")
		return
	}
	_ = probe.Close() // it holds nothing
	_ = os.Remove(probe.Name())
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		d.add(check, levelWarn, fmt.Sprintf("others may write to %s (mode %#o)", d.DataDir, mode), "chmod go-w "+view.Quote(string(d.DataDir)))
		return
	}
	d.ok(check, "%s can be written to", d.DataDir)
}

// permissions looks at the files that hold secrets, or say where they are.
func (d *doctor) permissions(context.Context) {
	const check = "permissions"
	looked, wrong := 0, 0
	private := func(path, what string) {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return // the check of the configuration says so
		case info.Mode().Perm()&0o077 != 0:
			wrong++
			d.add(check, levelWarn, fmt.Sprintf("others may read %s, %s (mode %#o)", path, what, info.Mode().Perm()), "chmod 600 "+view.Quote(path))
		}
		looked++
	}
	if d.Found && (d.Dispatcher.DatabaseURL != "" || d.Poller.DatabaseURL != "") {
		private(d.File, "which holds a database URL")
	}
	for _, file := range []string{d.Dispatcher.DatabaseURLFile, d.Poller.DatabaseURLFile} {
		if file != "" {
			private(file, "the file with the database URL")
		}
	}
	for _, s := range d.Poller.Sources {
		if s.TokenFile != "" {
			private(s.TokenFile, "the token of the source "+s.Name)
		}
		if s.App != nil {
			private(s.App.PrivateKeyFile, "the App's key of the source "+s.Name)
		}
	}
	own := []string{d.Tmuxd.StateDir}
	if d.Tmuxd.SocketDir != d.Tmuxd.StateDir {
		own = append(own, d.Tmuxd.SocketDir)
	}
	for _, dir := range append(own, d.DataDir.LogDir(), d.DataDir.RunDir(), d.DataDir.Traces()) {
		info, err := os.Stat(dir)
		if err != nil {
			continue
		}
		looked++
		if level, why, remedy := d.notPrivate(dir, info, d.Here(layout.Tmuxd) && slices.Contains(own, dir)); level != levelOK {
			wrong++
			d.add(check, level, why, remedy)
		}
	}
	if wrong == 0 {
		d.ok(check, "%s looked at, all private", view.Count(looked, "file or directory", "files and directories"))
	}
}

// notPrivate says what is wrong with a directory that others have no business in. One that is tmuxd's own has to be the user's whose the data directory
// is, or tmuxd does not start.
func (d *doctor) notPrivate(dir string, info fs.FileInfo, tmuxds bool) (level, why, remedy string) {
	owner, known := ownerOf(info)
	data, err := os.Stat(string(d.DataDir))
	if tmuxds && known && err == nil {
		if user, _ := ownerOf(data); owner != user {
			return levelFail, dir + " belongs to another user, and tmuxd does not use it", "remove it, or name another as tmuxd.state_dir or tmuxd.socket_dir"
		}
	}
	if link, err := os.Lstat(dir); tmuxds && err == nil && link.Mode()&fs.ModeSymlink != 0 {
		return levelFail, dir + " is a link, and tmuxd does not use it", "name the directory that it leads to as tmuxd.state_dir or tmuxd.socket_dir"
	}
	if info.Mode().Perm()&0o077 != 0 {
		return levelWarn, fmt.Sprintf("others may enter %s (mode %#o)", dir, info.Mode().Perm()),
			"see that all that lies there is yours, then chmod 700 " + view.Quote(dir)
	}
	return levelOK, "", ""
}

func (d *doctor) disk(context.Context) {
	const check = "disk"
	dir := string(d.DataDir)
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	free, err := freeSpace(dir)
	switch {
	case err != nil:
		d.err(check, levelWarn, fmt.Errorf("the free space of %s is not known: %w", dir, err))
	case free < noSpace:
		d.add(check, levelFail, fmt.Sprintf("only %d MiB are free in %s", free>>20, dir),
			"free some: a full disk stops the database and every delivery")
	case free < littleSpace:
		d.add(check, levelWarn, fmt.Sprintf("only %d MiB are free in %s", free>>20, dir), "free some before the database stops")
	default:
		d.ok(check, "%.1f GiB are free in %s", float64(free)/(1<<30), dir)
	}
}

// logind says whether the end of a login would end the agents too, or take something away from them.
func (d *doctor) logind(context.Context) {
	const check = "logout"
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		d.ok(check, "no systemd here that would end agents at a logout")
		return
	}
	u, err := user.Current()
	if err == nil {
		if _, err := os.Stat(filepath.Join("/var/lib/systemd/linger", u.Username)); err == nil {
			d.ok(check, "agents outlive a logout: this user lingers")
			return
		}
	}
	var files []string
	for _, dir := range []string{"/usr/lib/systemd/logind.conf.d", "/run/systemd/logind.conf.d", "/etc/systemd/logind.conf.d"} {
		more, _ := filepath.Glob(dir + "/*.conf")
		files = append(files, more...)
	}
	says := func(key string, usual bool) bool {
		return logindSays(append([]string{"/etc/systemd/logind.conf"}, files...), key, usual)
	}
	switch {
	case d.app.where.Root:
		d.ok(check, "agents outlive a logout")
	case says("KillUserProcesses", false):
		d.add(check, levelWarn, "logind ends all processes of a user at logout (KillUserProcesses=yes), agents and services with them",
			"loginctl enable-linger, and start muxpost in a unit of yours: systemd-run --user --scope muxpost up")
	case says("RemoveIPC", true) && os.Getuid() > maxSystemUser:
		d.add(check, levelWarn, "agents outlive a logout, and the shared memory that their programs use does not: logind removes it (RemoveIPC=yes)",
			"loginctl enable-linger")
	default:
		d.ok(check, "agents outlive a logout")
	}
}

// maxSystemUser is the highest number of a user whom logind leaves alone.
const maxSystemUser = 999

// logindSays reads a switch of logind; the last word in its files counts, and usual where there is none.
func logindSays(files []string, key string, usual bool) bool {
	on := usual
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, m := range regexp.MustCompile(`(?m)^\s*`+key+`\s*=\s*(\w+)`).FindAllSubmatch(data, -1) {
			on = slices.Contains([]string{"yes", "true", "1", "on"}, strings.ToLower(string(m[1])))
		}
	}
	return on
}
