package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// instanceFile is in the data directory: what the dispatchers that use it one after the other have in common, and the lock of the one that lives.
const instanceFile = "dispatcher.instance"

var instanceForm = regexp.MustCompile(`^[A-Z2-7]{20,64}$`)

// openInstance returns what names the dispatchers of a data directory, one after the other, and keeps the lock that one alone has: so whoever has
// it knows that every earlier one has ended, however it did. It is empty, with the reason, while another one lives or where nothing can be kept.
func openInstance(dir string) (instance string, lock io.Closer, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, instanceFile), os.O_RDWR|os.O_CREATE, 0o600) // no program that is started has it open
	if err != nil {
		return "", nil, err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return "", nil, fmt.Errorf("another dispatcher uses the data directory %s", dir)
	case err != nil:
		return "", nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, 100))
	if err != nil {
		return "", nil, err
	}
	if instance = strings.TrimSpace(string(data)); instanceForm.MatchString(instance) {
		return instance, file, nil
	}
	// It is new, or was not written whole: then nobody has called himself by it.
	instance = rand.Text()
	if err = file.Truncate(0); err == nil {
		_, err = file.WriteAt([]byte(instance+"\n"), 0)
	}
	if err == nil {
		err = file.Sync()
	}
	return instance, file, err
}

// processName names this process among all that share the database, for as long as any lease of it lasts: a process id alone comes
// back after a restart.
func processName() string {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "unknown"
	}
	return fmt.Sprintf("%s-%d-%s", hostname, os.Getpid(), rand.Text())
}
