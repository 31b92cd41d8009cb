package drill

import (
	"io"
	"net"
	"slices"
	"sync"
)

// wire passes on what is sent to a socket, where hosts cannot be namespaces. Cut, what is on its way stays where it is, and nobody is told.
type wire struct {
	to       string
	listener net.Listener

	mu     sync.Mutex
	change *sync.Cond
	broken []Kind
	closed bool
	conns  map[net.Conn]bool
}

// newWire listens on a unix socket for what is meant for another one.
func newWire(path, to string) (*wire, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	w := &wire{to: to, listener: listener, conns: map[net.Conn]bool{}}
	w.change = sync.NewCond(&w.mu)
	go w.accept()
	return w, nil
}

func (w *wire) accept() {
	for {
		conn, err := w.listener.Accept()
		if err != nil {
			return
		}
		go w.join(conn)
	}
}

func (w *wire) join(conn net.Conn) {
	defer conn.Close()
	if w.is(Refuse) {
		return
	}
	w.wait(Cut, Deaf)
	other, err := net.Dial("unix", w.to)
	if err != nil {
		return
	}
	defer other.Close()
	w.keep(conn, other)
	defer w.drop(conn, other)
	done := make(chan struct{}, 2)
	for _, way := range []struct {
		from, to net.Conn
		held     Kind
	}{{conn, other, Deaf}, {other, conn, Mute}} {
		go func() {
			w.pass(way.to, way.from, way.held)
			_ = conn.Close()
			_ = other.Close()
			done <- struct{}{}
		}()
	}
	<-done
	<-done
}

// pass copies until one side ends, and holds back while the line is cut, or this way of it.
func (w *wire) pass(to io.Writer, from io.Reader, held Kind) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		w.wait(Cut, held)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (w *wire) is(kinds ...Kind) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.any(kinds)
}

func (w *wire) any(kinds []Kind) bool {
	return slices.ContainsFunc(w.broken, func(k Kind) bool { return slices.Contains(kinds, k) })
}

// wait waits while one of these is broken.
func (w *wire) wait(kinds ...Kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.closed && w.any(kinds) {
		w.change.Wait()
	}
}

// Break and Mend are a line's.
func (w *wire) Break(k Kind) {
	w.mu.Lock()
	w.broken = append(w.broken, k)
	w.mu.Unlock()
	if k == Refuse {
		w.Reset()
	}
}

// Mend takes back one Break.
func (w *wire) Mend(k Kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := slices.Index(w.broken, k); at >= 0 {
		w.broken = slices.Delete(w.broken, at, at+1)
		w.change.Broadcast()
	}
}

// Reset breaks the connections that there are.
func (w *wire) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn := range w.conns {
		_ = conn.Close()
	}
}

// Close ends it.
func (w *wire) Close() {
	_ = w.listener.Close()
	w.mu.Lock()
	w.closed = true
	w.change.Broadcast()
	w.mu.Unlock()
	w.Reset()
}

func (w *wire) keep(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		w.conns[c] = true
	}
}

func (w *wire) drop(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		delete(w.conns, c)
	}
}
