package stack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/settings"
)

// Stack is the services of one installation on this machine.
type Stack struct {
	settings.Settings
	// BinDir holds the services' programs.
	BinDir string
	// Environ is what services inherit, as KEY=VALUE.
	Environ []string
	// InSession has the services started although this runs inside an agent's session, with which they end.
	InSession bool
	// Say tells a person what is being done, one line each. It must not be nil.
	Say func(format string, args ...any)
	// Now is the clock.
	Now func() time.Time
}

// Binary returns the path of a service's program.
func (s *Stack) Binary(service layout.Service) string {
	return filepath.Join(s.BinDir, service.Binary())
}

// VersionOf asks a program for its version: the text behind its name.
func VersionOf(ctx context.Context, binary string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, "-version").Output()
	if err != nil {
		return "", fmt.Errorf("%s does not tell its version: %w", binary, err)
	}
	text := strings.TrimSpace(string(out))
	return strings.TrimSpace(strings.TrimPrefix(text, filepath.Base(binary))), nil
}

// IsProgram reports whether a path is a file that can be run.
func IsProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// Health asks the service at an address whether it serves. Silence is fault.Unavailable, and so is a service that says no.
func Health(ctx context.Context, service layout.Service, address string) error {
	conn, err := Dial(service, address, rpc.DialOptions{})
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // It was only a question.
	return HealthOf(ctx, service, conn)
}

// HealthOf is Health by a client that is there.
func HealthOf(ctx context.Context, service layout.Service, conn *grpc.ClientConn) error {
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return err
	}
	if answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return fault.Newf(fault.Unavailable, "", "%s answers and says that it does not serve", Title(service)).
			WithRemedy("see its log for why; the database may be away")
	}
	return nil
}

// Dial returns a client of a service; what it is called is said here. It does not connect yet.
func Dial(service layout.Service, address string, options rpc.DialOptions) (*grpc.ClientConn, error) {
	options.Name = Title(service)
	options.Silent = map[layout.Service]fault.Reason{
		layout.Tmuxd: fault.ReasonHostUnreachable, layout.Dispatcher: fault.ReasonDispatcherSilent,
	}[service]
	return rpc.Dial(address, options)
}

// Title is a service's name in a sentence.
func Title(service layout.Service) string {
	if service == layout.Tmuxd {
		return "tmuxd"
	}
	return "the " + string(service)
}

// took writes how long something took, for people.
func took(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
