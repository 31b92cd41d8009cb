package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muxpost.dev/muxpost/internal/rpc"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
)

// fakeTmuxd tells versions to who asks for them.
type fakeTmuxd struct {
	tmuxdv1.UnimplementedTmuxdServiceServer
}

func (fakeTmuxd) Info(_ context.Context, r *tmuxdv1.InfoRequest) (*tmuxdv1.InfoResponse, error) {
	mine := &tmuxdv1.HarnessInfo{Name: "mine", Binary: "/opt/mine", RunsSessions: true}
	if r.GetHarnessVersions() {
		mine.Version = "mine 3.1"
	}
	return &tmuxdv1.InfoResponse{Host: "here", Harnesses: []*tmuxdv1.HarnessInfo{mine, {Name: "other", RunsSessions: true}}}, nil
}

func TestHarnesses_ListsWhatTmuxdTellsAndAsksForVersions(t *testing.T) {
	d := newDesk(t)
	d.serve(t, "t", func(s *rpc.Server) { tmuxdv1.RegisterTmuxdServiceServer(s, fakeTmuxd{}) })
	if err := d.run(t, "harnesses"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"mine 3.1", "/opt/mine", "Not installed: other.", "fakeagent (dispatcher.harness)"} {
		if !strings.Contains(d.out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, d.out)
		}
	}
	if err := d.run(t, "harnesses", "--json"); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Host      string
		Harnesses []struct{ Name, Binary, Version string }
	}
	if err := json.Unmarshal(d.out.Bytes(), &got); err != nil || got.Host != "here" || len(got.Harnesses) != 2 || got.Harnesses[0].Version != "mine 3.1" ||
		got.Harnesses[1].Binary != "" {
		t.Errorf("%v: %+v", err, got)
	}
}

func TestDoctor_SaysWhenTheHarnessOfFirstSessionsIsNotThereOrWasNotTried(t *testing.T) {
	d := newDesk(t)
	path := filepath.Join(d.dir, "muxpost.yaml")
	entry := "{fresh: [], prompt: '^> (.*)$', unmeasured: [prompt, dialogs]}"
	for binary, want := range map[string][]string{
		"no-such-program --flag": {`the program of mine, "no-such-program", was not found`, "tmuxd.harnesses.mine.binary", "never tried on the real program: prompt, dialogs"},
		"sh -c":                  {"mine is /", "never tried on the real program: prompt, dialogs"},
	} {
		config := "tmuxd: {harnesses: {mine: " + strings.Replace(entry, "{", "{binary: '"+binary+"', ", 1) + "}}\ndispatcher: {harness: mine}\n"
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = d.run(t, "doctor") // which fails here: nothing was started
		for _, w := range want {
			if !strings.Contains(d.out.String(), w) {
				t.Errorf("%s: it does not say %q:\n%s", binary, w, d.out)
			}
		}
	}
}
