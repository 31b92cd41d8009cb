package drill

import (
	"io"
	"net"
	"sync"
)

// wire passes on what is sent to a socket, and can be cut: then what is on its way stays where it is, and nobody is told.
type wire struct {
	to       string
	listener net.Listener

	mu    sync.Mutex
	free  *sync.Cond
	cut   bool
	conns map[net.Conn]bool
}

// newWire listens on a unix socket for what is meant for another one.
func newWire(path, to string) (*wire, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	w := &wire{to: to, listener: listener, conns: map[net.Conn]bool{}}
	w.free = sync.NewCond(&w.mu)
	go w.accept()
	return w, nil
}

func (w *wire) accept() {
	for {
		conn, err := w.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			w.wait()
			other, err := net.Dial("unix", w.to)
			if err != nil {
				return
			}
			defer other.Close()
			w.keep(conn, other)
			defer w.drop(conn, other)
			done := make(chan struct{}, 2)
			for _, way := range [][2]net.Conn{{conn, other}, {other, conn}} {
				go func() {
					w.pass(way[1], way[0])
					_ = conn.Close()
					_ = other.Close()
					done <- struct{}{}
				}()
			}
			<-done
			<-done
		}()
	}
}

// pass copies until one side ends, and holds back while the line is cut.
func (w *wire) pass(to io.Writer, from io.Reader) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		w.wait()
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

// wait waits while the line is cut.
func (w *wire) wait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.cut {
		w.free.Wait()
	}
}

// Cut cuts the line, or mends it.
func (w *wire) Cut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	w.free.Broadcast()
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
	w.Cut(false)
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
