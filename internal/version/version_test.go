package version

import (
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muxpost.dev/muxpost/internal/needs"
)

func TestDescribe_StampWinsOverTheToolchainsRecord(t *testing.T) {
	build := &debug.BuildInfo{Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "ffffffffffffffffffffffffffffffffffffffff"}, {Key: "vcs.modified", Value: "true"},
	}}
	build.Main.Version = "v9.9.9"
	for _, tt := range []struct {
		name    string
		stamped Info
		build   *debug.BuildInfo
		want    string
	}{
		{"a release", Info{Version: "v0.1.0", Commit: "abc1234def"}, build, "v0.1.0 (abc1234)"},
		{"a release from a changed tree", Info{Version: "v0.1.0", Commit: "abc1234def", Dirty: true}, build, "v0.1.0 (abc1234, modified)"},
		{"git's name of a commit without a release", Info{Version: "abc1234-dirty", Commit: "abc1234def", Dirty: true}, build, "abc1234-dirty"},
		{"git's name of a commit after a release", Info{Version: "v0.1.0-3-gabc1234", Commit: "abc1234def"}, build, "v0.1.0-3-gabc1234"},
		{"a commit without a version", Info{Commit: "abc1234"}, build, "devel (abc1234)"},
		{"a module installed by version", Info{}, build, "v9.9.9 (fffffff, modified)"},
		{
			"a commit between two releases", Info{}, &debug.BuildInfo{
				Main: debug.Module{Version: "v0.1.1-0.20260102150405-ffffffffffff+dirty"}, Settings: build.Settings,
			}, "v0.1.1-0.20260102150405-ffffffffffff+dirty",
		},
		{"nothing known", Info{}, &debug.BuildInfo{}, "devel"},
		{"no build information", Info{}, nil, "devel"},
		{"a short hash", Info{Version: "v1.0.0", Commit: "ab"}, nil, "v1.0.0 (ab)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, describe(tt.stamped, tt.build).String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestVersion_LinkerStampsTheNamedVariables(t *testing.T) {
	goTool := needs.Program(t, "go")
	binary := filepath.Join(t.TempDir(), "version.test")
	const pkg = "muxpost.dev/muxpost/internal/version."
	flags := "-X " + pkg + "Version=v7.8.9 -X " + pkg + "Commit=0123456789 -X " + pkg + "Dirty=true"
	if out, err := exec.Command(goTool, "test", "-c", "-o", binary, "-ldflags", flags, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	out, err := exec.Command(binary, "-test.run", "TestVersion_PrintsItself", "-test.v").CombinedOutput()
	if err != nil {
		t.Fatalf("run: %v\n%s", err, out)
	}
	if want := "v7.8.9 (0123456, modified)"; !strings.Contains(string(out), want) {
		t.Errorf("the stamped binary printed %q, want %q in it", out, want)
	}
}

func TestVersion_PrintsItself(t *testing.T) {
	if String() == "" {
		t.Error("an empty version")
	}
	t.Log(String())
}
