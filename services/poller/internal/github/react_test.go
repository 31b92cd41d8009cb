package github

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace/noop"
)

func TestReact_GoesToWhatTheEventIsAbout(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, r.Method+" "+r.URL.Path+" "+string(body[:len(body)-1]))
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id": 1}`)
	}))
	t.Cleanup(server.Close)
	token, err := NewToken("", func() (string, error) { return "tok", nil })
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{BaseURL: server.URL + "/", Host: "x", Token: token, Label: "l", TracerProvider: noop.NewTracerProvider()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for _, row := range []struct {
		kind    string
		comment int64
	}{{"opened", 0}, {"comment", 5}, {"review_comment", 6}} {
		if err := c.React(t.Context(), "octo/widget", 7, row.kind, row.comment, "eyes"); err != nil {
			t.Error(err)
		}
	}
	want := []string{
		`POST /repos/octo/widget/issues/7/reactions {"content":"eyes"}`,
		`POST /repos/octo/widget/issues/comments/5/reactions {"content":"eyes"}`,
		`POST /repos/octo/widget/pulls/comments/6/reactions {"content":"eyes"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
