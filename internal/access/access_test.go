package access

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/rpc"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
)

var services = []protoreflect.ServiceDescriptor{
	dispatcherv1.File_muxpost_dispatcher_v1_dispatcher_proto.Services().ByName("DispatcherService"),
	pollerv1.File_muxpost_poller_v1_poller_proto.Services().ByName("PollerService"),
	teamv1.File_muxpost_team_v1_team_proto.Services().ByName("TeamService"),
}

// Who adds a call says what it needs. What is called a read by the contract must change nothing, and what is not is never for readers.
func TestCalls_EveryOneIsInTheTableAndNoOther(t *testing.T) {
	listed := 0
	for _, calls := range methods() {
		listed += len(calls)
	}
	for _, s := range services {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			n, ok := methods()[string(s.FullName())][string(m.Name())]
			if !ok {
				t.Errorf("%s is not in the table", m.FullName())
				continue
			}
			listed--
			options, _ := m.Options().(*descriptorpb.MethodOptions)
			isRead := options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
			stream := m.IsStreamingServer()
			if n.role == Read && !isRead && !stream || n.role != Read && isRead && m.Name() != "ListTokens" || n.role == None {
				t.Errorf("%s needs %v, and the contract says that it is a read: %v", m.FullName(), n.role, isRead)
			}
		}
	}
	if listed != 0 {
		t.Errorf("the table has %d calls that the contract does not have", listed)
	}
	for _, unknown := range []string{"", "/", "/muxpost.poller.v1.PollerService/Nope", "/muxpost.tmuxd.v1.TmuxdService/Info", "x"} {
		if n := needs(unknown); n.role != Admin || n.open || n.services {
			t.Errorf("%q needs %+v", unknown, n)
		}
	}
	if n := needs("/grpc.health.v1.Health/Check"); !n.open {
		t.Error("health is not open")
	}
}

// shelf keeps tokens.
type shelf map[string]Token

func (s shelf) Token(_ context.Context, id string) (Token, error) {
	if t, ok := s[id]; ok {
		return t, nil
	}
	return Token{}, fault.New(fault.NotFound, "", "no")
}

// make puts a token on the shelf, and returns its text.
func (s shelf) make(change func(*Token)) string {
	text, id, hash := New()
	t := Token{ID: id, Name: "ann", Role: Operate, Hash: hash}
	change(&t)
	s[id] = t
	return text
}

var now = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func TestAuthorize_ATokenLetsDoWhatItsRoleSays(t *testing.T) {
	kept := shelf{}
	role := func(r Role) string { return kept.make(func(t *Token) { t.Role = r }) }
	reader, operator, admin := role(Read), role(Operate), role(Admin)
	revoked := kept.make(func(t *Token) { t.Revoked = now.Add(-time.Hour) })
	ended := kept.make(func(t *Token) { t.Ends = now })
	ends := kept.make(func(t *Token) { t.Ends = now.Add(time.Second) })
	empty := kept.make(func(t *Token) { t.Hash = nil })
	last := operator[len(operator)-1:]
	wrong := operator[:len(operator)-1] + map[bool]string{true: "b", false: "a"}[last == "a"]
	const list, pause, add, deliver = "/muxpost.dispatcher.v1.DispatcherService/ListSessions", "/muxpost.dispatcher.v1.DispatcherService/Pause",
		"/muxpost.dispatcher.v1.DispatcherService/AddHost", "/muxpost.dispatcher.v1.DispatcherService/Deliver"
	for _, tt := range []struct {
		name, header, method string
		want                 fault.Kind
	}{
		{"nobody", "", list, fault.Unauthenticated},
		{"nobody, and health", "", "/grpc.health.v1.Health/Check", 0},
		{"nobody, and reflection", "", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", fault.Unauthenticated},
		{"a reader looks", "Bearer " + reader, list, 0},
		{"in lower case", "bearer  " + reader + " ", list, 0},
		{"a reader pauses", "Bearer " + reader, pause, fault.Denied},
		{"an operator looks", "Bearer " + operator, list, 0},
		{"an operator pauses", "Bearer " + operator, pause, 0},
		{"an operator adds a host", "Bearer " + operator, add, fault.Denied},
		{"an operator goes round the ledger", "Bearer " + operator, deliver, fault.Denied},
		{"an admin adds a host", "Bearer " + admin, add, 0},
		{"an admin calls what nobody knows", "Bearer " + admin, "/x/Y", 0},
		{"revoked", "Bearer " + revoked, list, fault.Unauthenticated},
		{"ended", "Bearer " + ended, list, fault.Unauthenticated},
		{"about to end", "Bearer " + ends, list, 0},
		{"another secret", "Bearer " + wrong, list, fault.Unauthenticated},
		{"no hash is kept", "Bearer " + empty, list, fault.Unauthenticated},
		{"half a token", "Bearer " + operator[:20], list, fault.Unauthenticated},
		{"no token", "Bearer", list, fault.Unauthenticated},
		{"a password", "Basic YTpi", list, fault.Unauthenticated},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			g := Guard{Tokens: kept, Logger: slog.New(slog.NewTextHandler(&log, nil)), Now: func() time.Time { return now }}
			_, err := g.Authorize(t.Context(), rpc.Call{Method: tt.method, Authorization: tt.header})
			if tt.want == 0 && err != nil || tt.want != 0 && !errors.Is(err, tt.want) {
				t.Errorf("%v", err)
			}
			var f *fault.Error
			if tt.want != 0 && (!errors.As(err, &f) || f.Remedy == "") {
				t.Errorf("there is no remedy: %v", err)
			}
			if _, secret, ok := parse(strings.TrimPrefix(tt.header, "Bearer ")); ok && (strings.Contains(log.String(), secret) || err != nil && strings.Contains(err.Error(), secret)) {
				t.Errorf("the secret is told: %v, %s", err, &log)
			}
			// On this machine only a token that is shown is checked.
			g.Local = true
			if _, local := g.Authorize(t.Context(), rpc.Call{Method: tt.method, Authorization: tt.header}); tt.header == "" && local != nil || tt.header != "" && (local == nil) != (err == nil) {
				t.Errorf("on this machine: %v", local)
			}
		})
	}
}

// A database that does not answer is not a token that does not count.
func TestAuthorize_ASilentDatabaseIsUnavailable(t *testing.T) {
	text, _, _ := New()
	g := Guard{Tokens: silent{}, Logger: slog.New(slog.DiscardHandler), Now: time.Now}
	if _, err := g.Authorize(t.Context(), rpc.Call{Method: "/x/Y", Authorization: "Bearer " + text}); !errors.Is(err, fault.Unavailable) {
		t.Error(err)
	}
}

type silent struct{}

func (silent) Token(context.Context, string) (Token, error) {
	return Token{}, fault.New(fault.Unavailable, fault.ReasonDatabase, "away")
}

func TestAmend_WhoIsTheTokensOwner(t *testing.T) {
	kept := shelf{}
	g := Guard{Tokens: kept, Logger: slog.New(slog.DiscardHandler), Now: time.Now, Local: true}
	said := func(header string) string {
		ctx, err := g.Authorize(t.Context(), rpc.Call{Method: "/muxpost.dispatcher.v1.DispatcherService/Pause", Authorization: header})
		if err != nil {
			t.Fatal(err)
		}
		r := &dispatcherv1.PauseRequest{Who: "the boss"}
		g.Amend(ctx, r)
		g.Amend(ctx, &dispatcherv1.InfoRequest{}) // which says nothing of it
		g.Amend(ctx, "no message")
		return r.GetWho()
	}
	if got := said("Bearer " + kept.make(func(*Token) {})); got != "ann" {
		t.Errorf("by a token: %q", got)
	}
	if got := said(""); got != "the boss" {
		t.Errorf("on this machine: %q", got)
	}
}

func TestNew_NoTwoAreAlikeAndTheSecretIsNotKept(t *testing.T) {
	one, id, hash := New()
	other, _, otherHash := New()
	gotID, secret, ok := parse(one)
	if one == other || bytes.Equal(hash, otherHash) || !ok || gotID != id || len(hash) != 32 || bytes.Contains(hash, []byte(secret)) || !strings.HasPrefix(one, "muxpost_") {
		t.Errorf("%q %q %x", one, other, hash)
	}
}

func FuzzParse(f *testing.F) {
	text, _, _ := New()
	f.Add(text)
	f.Add("muxpost__")
	f.Fuzz(func(t *testing.T, text string) {
		if id, secret, ok := parse(text); ok && strings.Join([]string{"muxpost", id, secret}, "_") != text {
			t.Errorf("%q, %q of %q", id, secret, text)
		}
	})
}
