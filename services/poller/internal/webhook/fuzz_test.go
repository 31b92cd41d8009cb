package webhook

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"muxpost.dev/muxpost/services/poller/internal/github"
	"muxpost.dev/muxpost/services/poller/internal/hook"
)

// kept takes everything, as the inbox does; the other tests of this package have the inbox itself.
type kept struct{ arrivals []hook.Arrival }

func (k *kept) Put(_ context.Context, a hook.Arrival) (bool, error) {
	k.arrivals = append(k.arrivals, a)
	return false, nil
}

// Whoever does not know the secret gets nothing in, and learns nothing. Whoever knows it gets in what he sent, byte by byte, or is told why not.
func FuzzReceive(f *testing.F) {
	for _, m := range []message{
		comment("b1946ac9-0000-4000-8000-000000000001", 1),
		signedMessage("ping", "g1", []byte(`{"zen":"x"}`)),
		signedMessage("pull_request_review", "g2", []byte(`{"action":"submitted","repository":{"full_name":"octo/widget"},"pull_request":{"number":3}}`)),
		signedMessage("check_run", "g3", []byte(`{"action":"completed","check_run":{"head_sha":"\u0000"},"repository":{"full_name":"octo/widget"}}`)),
		signedMessage("status", "g4", []byte(`[]`)),
		signedMessage("issues", "g\n5", nil),
	} {
		f.Add(m.source, m.event, m.guid, m.contentType, m.body, true)
		f.Add(m.source, m.event, m.guid, m.contentType, m.body, false)
	}
	f.Fuzz(func(t *testing.T, source, event, guid, kind string, body []byte, knows bool) {
		inbox := &kept{}
		r := New(Config{
			Sources: []Source{{Name: "gh", Repositories: []string{"octo/widget"}, Secrets: &Secrets{secrets: [][]byte{[]byte(secret)}}}},
			Intake:  inbox, Open: github.OpenPayload, Logger: slog.New(slog.DiscardHandler),
		})
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/webhooks/gh", bytes.NewReader(body))
		request.SetPathValue("source", source)
		request.Header = http.Header{headerEvent: {event}, headerGUID: {guid}, "Content-Type": {kind}}
		if knows {
			request.Header.Set(headerSignature, sign(secret, body))
		} else {
			request.Header.Set(headerSignature, sign(secret+"x", body))
		}
		w := httptest.NewRecorder()
		r.receive(w, request)
		switch {
		case w.Code >= 500:
			t.Fatalf("it answers %d: %s", w.Code, w.Body)
		case !knows || source != "gh":
			if w.Code != http.StatusUnauthorized || len(inbox.arrivals) != 0 {
				t.Fatalf("a stranger gets %d, %s", w.Code, w.Body)
			}
		case len(inbox.arrivals) == 1 && !bytes.Equal(inbox.arrivals[0].Payload, body):
			t.Fatalf("%q was kept as %q", body, inbox.arrivals[0].Payload)
		}
	})
}
