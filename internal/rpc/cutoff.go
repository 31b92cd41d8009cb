package rpc

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// streamGrace is how long the last words of a stream may take once the server is told to stop.
const streamGrace = time.Second

// answerKey is the key under which a request's context has what its answer is written to.
type answerKey struct{}

// withAnswer tells the handlers of RPCs what their answers are written to.
func withAnswer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), answerKey{}, w)))
	})
}

// cutOff has the answer of a stream be given up soon after the server is told to stop: the handler that writes to a client which does not read
// hears nothing of the stop. The caller calls done when the handler has ended.
func (s *ConnectServer) cutOff(ctx context.Context) (done func()) {
	w, ok := ctx.Value(answerKey{}).(http.ResponseWriter)
	if !ok {
		return func() {}
	}
	var mu sync.Mutex
	ended := false
	forget := context.AfterFunc(s.edge.stop, func() {
		mu.Lock()
		defer mu.Unlock()
		if !ended { // a writer whose handler has ended must not be touched
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(streamGrace)) // else the stop takes its time
		}
	})
	return func() {
		forget()
		mu.Lock()
		defer mu.Unlock()
		ended = true
	}
}
