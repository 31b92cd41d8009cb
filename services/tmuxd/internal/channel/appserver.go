package channel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

const (
	// maxMessage bounds one message of an app-server, in bytes: it may hold what commands of several turns printed.
	maxMessage = 64 << 20
	// recentTurns is in how many turns a delivery is looked for: what is older, the conversation's own record tells.
	recentTurns = 10
	// recordTime is how long a turn that was accepted may take to show its message, and recordTick how often it is looked for.
	recordTime = 5 * time.Second
	recordTick = 20 * time.Millisecond
	// awayTime is for how long a delivery that may have been handed over has to be absent, before it is handed over again.
	awayTime = 3 * time.Second
)

// app is a connection to codex's app-server: JSON-RPC in messages of a WebSocket. The server tells us much that nobody asked for, and may ask
// for approvals: that is all passed over.
type app struct {
	conn *websocket.Conn
	sent int
}

// thread is a conversation that the server has open.
type thread struct {
	ID        string  `json:"id"`
	Preview   string  `json:"preview"` // empty until something was said
	Ephemeral bool    `json:"ephemeral"`
	Parent    *string `json:"parentThreadId"`
	Source    *string `json:"threadSource"`
	Status    struct {
		Type        string   `json:"type"`
		ActiveFlags []string `json:"activeFlags"`
	} `json:"status"`
}

// refusal is an error that the server answered with.
type refusal struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (r *refusal) Error() string { return fmt.Sprintf("it refuses: %s (%d)", r.Message, r.Code) }

// dial connects to the server of an incarnation. The error is host.ErrNobodyListens where there is none.
func (s *Sockets) dial(ctx context.Context, stamp string) (*app, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", s.Socket(stamp))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", host.ErrNobodyListens, err)
		}
		return conn, nil
	}}}
	conn, _, err := websocket.Dial(ctx, "ws://agent/", &websocket.DialOptions{HTTPClient: client}) //nolint:bodyclose // Dial takes care of it.
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(maxMessage)
	a := &app{conn: conn}
	who := map[string]any{"clientInfo": map[string]string{"name": "muxpost", "title": "muxpost", "version": "1"}}
	if err := a.call(ctx, "initialize", who, nil); err != nil {
		return nil, errors.Join(err, conn.CloseNow())
	}
	if err := a.write(ctx, map[string]any{"method": "initialized"}); err != nil {
		return nil, errors.Join(err, conn.CloseNow())
	}
	return a, nil
}

func (a *app) close() { _ = a.conn.CloseNow() }

func (a *app) write(ctx context.Context, message any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return a.conn.Write(ctx, websocket.MessageText, data)
}

// call makes a request and reads its result. An error that is no refusal proves nothing.
func (a *app) call(ctx context.Context, method string, params, result any) error {
	a.sent++
	if err := a.write(ctx, map[string]any{"id": a.sent, "method": method, "params": params}); err != nil {
		return err
	}
	for {
		_, data, err := a.conn.Read(ctx)
		if err != nil {
			return err
		}
		var answer struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Result json.RawMessage `json:"result"`
			Error  *refusal        `json:"error"`
		}
		if err := json.Unmarshal(data, &answer); err != nil {
			return errors.New("its answer is malformed")
		}
		if answer.Method != "" || string(answer.ID) != fmt.Sprint(a.sent) {
			continue
		}
		if answer.Error != nil {
			return answer.Error
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(answer.Result, result)
	}
}

// threads returns the conversations of a person's that are open.
func (a *app) threads(ctx context.Context) ([]thread, error) {
	var loaded struct{ Data []string }
	if err := a.call(ctx, "thread/loaded/list", struct{}{}, &loaded); err != nil {
		return nil, err
	}
	var out []thread
	for _, id := range loaded.Data {
		var read struct{ Thread thread }
		err := a.call(ctx, "thread/read", map[string]any{"threadId": id}, &read)
		if refused := (*refusal)(nil); errors.As(err, &refused) {
			continue // it was closed just now
		}
		if err != nil {
			return nil, err
		}
		t := read.Thread
		if !t.Ephemeral && t.Parent == nil && (t.Source == nil || *t.Source == "user") {
			out = append(out, t)
		}
	}
	return out, nil
}

// has reports whether one of a conversation's last turns holds a delivery.
func (a *app) has(ctx context.Context, t thread, delivery string) (bool, error) {
	if t.Preview == "" {
		return false, nil
	}
	var turns struct {
		Data []struct {
			Items []struct {
				Type     string  `json:"type"`
				ClientID *string `json:"clientId"`
			} `json:"items"`
		} `json:"data"`
	}
	err := a.call(ctx, "thread/turns/list", map[string]any{"threadId": t.ID, "limit": recentTurns, "itemsView": "full"}, &turns)
	for _, turn := range turns.Data {
		for _, item := range turn.Items {
			if item.Type == "userMessage" && item.ClientID != nil && *item.ClientID == delivery {
				return true, nil
			}
		}
	}
	return false, err
}

// standing says how things stand with a delivery.
func (a *app) standing(ctx context.Context, delivery string) (host.Standing, error) {
	threads, err := a.threads(ctx)
	if err != nil {
		return host.Standing{}, err
	}
	for _, t := range threads {
		switch has, err := a.has(ctx, t, delivery); {
		case err != nil:
			return host.Standing{}, err
		case has:
			return host.Standing{Taken: true, Conversation: t.ID}, nil
		}
	}
	if len(threads) != 1 {
		// A person began or opened another one: which of them is in the pane, the terminal alone knows.
		return host.Standing{}, nil
	}
	t := threads[0]
	return host.Standing{Conversation: t.ID, Busy: t.Status.Type == "active", Dialog: len(t.Status.ActiveFlags) > 0}, nil
}

func (s *Sockets) askApp(ctx context.Context, l host.Line, delivery string) (host.Standing, error) {
	a, err := s.dial(ctx, l.Stamp)
	if err != nil {
		return host.Standing{}, err
	}
	defer a.close()
	is, err := a.standing(ctx, delivery)
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		err = fmt.Errorf("%w: %w", host.ErrNobodyListens, err) // another release of it, perhaps: asking changed nothing
	}
	return is, err
}

// handApp starts a turn with the delivery. The server starts as many as it is asked for: one that may have been asked for before must have been
// absent for a time.
func (s *Sockets) handApp(ctx context.Context, l host.Line, o host.Offer) (host.Standing, error) {
	a, err := s.dial(ctx, l.Stamp)
	if err != nil {
		return host.Standing{}, fmt.Errorf("%w: %w", host.ErrNobodyListens, err)
	}
	defer a.close()
	away := time.Duration(0)
	if o.Again {
		away = awayTime
	}
	now, err := a.watch(ctx, o.ID, away)
	if err != nil {
		return host.Standing{}, fmt.Errorf("%w: %w", host.ErrNobodyListens, err)
	}
	if now.Taken || now.Conversation == "" || now.Dialog || now.Busy && !o.Busy {
		return now, nil
	}
	err = a.call(ctx, "turn/start", map[string]any{"threadId": now.Conversation, "clientUserMessageId": o.ID,
		"input": []map[string]string{{"type": "text", "text": o.Text}}}, nil)
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		return host.Standing{}, fmt.Errorf("%w: %w", host.ErrNobodyListens, err)
	}
	if err != nil {
		return host.Standing{}, err
	}
	if taken, err := a.watch(ctx, o.ID, recordTime); err == nil && taken.Taken {
		return taken, nil
	}
	return host.Standing{Queued: true, Conversation: now.Conversation}, nil
}

// watch looks for a delivery until it is taken, for a time.
func (a *app) watch(ctx context.Context, delivery string, limit time.Duration) (host.Standing, error) {
	for end := time.Now().Add(limit); ; {
		now, err := a.standing(ctx, delivery)
		if err != nil || now.Taken || !time.Now().Before(end) {
			return now, err
		}
		select {
		case <-time.After(recordTick):
		case <-ctx.Done():
			return now, ctx.Err()
		}
	}
}
