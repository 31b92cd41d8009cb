// Package pidfd tells of the end of processes that are not ours: one epoll loop waits for all of them, and costs nothing while they live.
//
// A process is named by its pid and its start, so that another one that was given the same pid is never taken for it. The package works on
// Linux alone, and knows nothing of what the processes are.
package pidfd

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"golang.org/x/sys/unix"

	"muxpost.dev/muxpost/internal/wrapper"
)

// ErrClosed is the error of a Watcher that was closed.
var ErrClosed = errors.New("the watcher of processes is closed")

// wakeID is the id under which the loop's own descriptor is registered.
const wakeID = 0

// Watcher calls back when processes end.
type Watcher struct {
	epoll, wake int
	looped      chan struct{}

	mu      sync.Mutex
	closed  bool
	nextID  int32
	watches map[int32]*watch
	// gone are the callbacks of processes that had ended before they could be watched.
	gone []func()
}

type watch struct {
	fd    int
	ended func()
}

// New returns a watcher. It is to be closed.
func New() (*Watcher, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: wakeID})
	}
	if err != nil {
		_ = unix.Close(epoll)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	w := &Watcher{epoll: epoll, wake: wake, looped: make(chan struct{}), watches: map[int32]*watch{}}
	go w.loop()
	return w, nil
}

// Watch calls ended once, when the process that has this pid and started at this time (in clock ticks since boot, as /proc/PID/stat has it)
// has ended: at once when it has ended already, or when the pid belongs to another process by now. A zombie has ended. Callbacks come one
// after another: ended must not block, and must not call Close.
//
// stop gives the watch up; a callback that is under way is not waited for. An error means that the process cannot be watched, and that
// nothing is known of it: descriptors can run out.
func (w *Watcher) Watch(pid int, start uint64, ended func()) (stop func(), err error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return func() {}, w.over(ended)
	}
	if err != nil {
		return nil, fmt.Errorf("pidfd_open of process %d: %w", pid, err)
	}
	// From here on the descriptor names one process for good. Whether it is the one that is meant, its start says.
	now, err := wrapper.Find(pid)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || err == nil && now.Start != start {
		_ = unix.Close(fd)
		return func() {}, w.over(ended)
	}
	if err == nil {
		stop, err = w.add(fd, ended)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("watching process %d: %w", pid, err)
	}
	return stop, nil
}

// over has the loop call back for a process that is gone.
func (w *Watcher) over(ended func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	w.gone = append(w.gone, ended)
	w.rouse()
	return nil
}

func (w *Watcher) add(fd int, ended func()) (stop func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, ErrClosed
	}
	// Events carry this id and not the descriptor: its number may be another process's by the time an event is read.
	for w.watches[w.nextID] != nil || w.nextID <= wakeID {
		w.nextID = max(w.nextID+1, wakeID+1)
	}
	id := w.nextID
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: id}); err != nil {
		return nil, err
	}
	w.watches[id] = &watch{fd, ended}
	return func() { w.take(id) }, nil
}

// take ends a watch. It returns nil when it had ended before.
func (w *Watcher) take(id int32) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	found, ok := w.watches[id]
	if !ok {
		return nil
	}
	delete(w.watches, id)
	// Closing would not be enough: a child that is being started holds a copy of the descriptor for a moment.
	_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, found.fd, nil)
	_ = unix.Close(found.fd)
	return found
}

// rouse makes the loop look at what is new. The lock is held.
func (w *Watcher) rouse() {
	_, _ = unix.Write(w.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // it fails only when the loop is roused already
}

func (w *Watcher) loop() {
	defer close(w.looped)
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(w.epoll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return // the descriptor is ours and valid, so this cannot happen
		}
		for _, e := range events[:max(n, 0)] {
			if e.Fd == wakeID {
				if w.roused() {
					return
				}
				continue
			}
			if found := w.take(e.Fd); found != nil {
				found.ended()
			}
		}
	}
}

// roused calls back for processes that were gone. It returns true when the watcher is closed.
func (w *Watcher) roused() (closed bool) {
	var count [8]byte
	_, _ = unix.Read(w.wake, count[:])
	w.mu.Lock()
	gone, closed := w.gone, w.closed
	w.gone = nil
	w.mu.Unlock()
	if closed {
		return true
	}
	for _, ended := range gone {
		ended()
	}
	return false
}

// Close ends all watches. When it returns, no callback is running and none will come.
func (w *Watcher) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return ErrClosed
	}
	w.closed = true
	w.rouse()
	w.mu.Unlock()
	<-w.looped
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, found := range w.watches {
		_ = unix.Close(found.fd)
		delete(w.watches, id)
	}
	return errors.Join(unix.Close(w.wake), unix.Close(w.epoll))
}
