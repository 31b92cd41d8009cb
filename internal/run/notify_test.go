package run

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"
)

func TestGroup_TellsTheServiceManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	heard := func() string {
		_ = manager.SetReadDeadline(time.Now().Add(20 * time.Second))
		b := make([]byte, 100)
		n, err := manager.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group Group
	group.Add("one", func(ctx context.Context) error { <-ctx.Done(); return nil })
	ended := make(chan error)
	go func() { ended <- group.Run(ctx) }()
	if got := heard(); got != "READY=1" {
		t.Errorf("at its start it said %q", got)
	}
	cancel()
	if got := heard(); got != "STOPPING=1" {
		t.Errorf("at its end it said %q", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
