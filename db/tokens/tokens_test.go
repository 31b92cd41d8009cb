package tokens

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/db/dbtest"
	"muxpost.dev/muxpost/internal/access"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

func TestStore_KeepsListsAndRevokes(t *testing.T) {
	s := New(dbtest.New(t))
	create := func(name string, role access.Role, ends time.Time) access.Token {
		t.Helper()
		_, id, hash := access.New()
		kept, err := s.Create(t.Context(), access.Token{ID: id, Name: name, Role: role, Hash: hash, Who: "root", Ends: ends})
		if err != nil {
			t.Fatal(err)
		}
		if kept.Name != name || kept.Role != role || kept.Made.IsZero() || !kept.Used.IsZero() || kept.Ends.Unix() != ends.Unix() {
			t.Errorf("%+v", kept)
		}
		return kept
	}
	ann := create("ann", access.Operate, time.Time{})
	again := create("ann", access.Admin, time.Now().Add(time.Hour)) // while one replaces another, both count
	create("old", access.Read, time.Now().Add(-time.Hour))
	names := func(all bool) (out []string) {
		t.Helper()
		list, err := s.List(t.Context(), all)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range list {
			out = append(out, k.ID)
		}
		return out
	}
	if got := names(false); len(got) != 2 || got[0] != again.ID || got[1] != ann.ID {
		t.Errorf("%v", got)
	}
	found, err := s.Token(t.Context(), ann.ID)
	if err != nil || string(found.Hash) != string(ann.Hash) {
		t.Errorf("%+v, %v", found, err)
	}
	if found, err = s.Token(t.Context(), ann.ID); err != nil || time.Since(found.Used) > time.Minute {
		t.Errorf("its use is not noted: %+v, %v", found, err)
	}
	if k, changed, err := s.Revoke(t.Context(), ann.ID, "bob"); err != nil || !changed || k.Revoked.IsZero() {
		t.Errorf("%+v, %v, %v", k, changed, err)
	}
	if k, changed, err := s.Revoke(t.Context(), ann.ID, "eve"); err != nil || changed || k.Revoked.IsZero() {
		t.Errorf("a second time: %+v, %v, %v", k, changed, err)
	}
	if got := names(false); len(got) != 1 {
		t.Errorf("%v", got)
	}
	if got := names(true); len(got) != 3 {
		t.Errorf("%v", got)
	}
	_, _, revoked := s.Revoke(t.Context(), "nope", "x")
	if _, err := s.Token(t.Context(), "nope"); !errors.Is(err, fault.NotFound) || !errors.Is(revoked, fault.NotFound) {
		t.Errorf("%v, %v", err, revoked)
	}
}

// What ended long ago goes with the next token that is made; what counts never does.
func TestCreate_ForgetsWhatEndedLongAgo(t *testing.T) {
	pool := dbtest.New(t)
	s := New(pool)
	create := func(name string) {
		t.Helper()
		_, id, hash := access.New()
		if _, err := s.Create(t.Context(), access.Token{ID: id, Name: name, Role: access.Read, Hash: hash}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"counts", "revoked", "expired", "revoked-lately"} {
		create(name)
	}
	if _, err := pool.Exec(t.Context(), `update access.tokens set
		revoked_at = case name when 'revoked' then now() - interval '91 days' when 'revoked-lately' then now() end,
		expires_at = case name when 'expired' then now() - interval '91 days' when 'counts' then now() + interval '1 day' end`); err != nil {
		t.Fatal(err)
	}
	create("new")
	list, err := s.List(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, k := range list {
		names = append(names, k.Name)
	}
	slices.Sort(names)
	if want := []string{"counts", "new", "revoked-lately"}; !slices.Equal(names, want) {
		t.Errorf("left are %v, not %v", names, want)
	}
}
