package run

import (
	"net"
	"os"
	"strings"
)

// notifyVariable names the socket at which a service manager (systemd's Type=notify) wants to hear how a program stands.
const notifyVariable = "NOTIFY_SOCKET"

// notify tells the service manager, where there is one. One that does not listen has its own limit for how long it waits.
func notify(state string) {
	address := os.Getenv(notifyVariable)
	if address == "" {
		return
	}
	if name, ok := strings.CutPrefix(address, "@"); ok {
		address = "\x00" + name
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return
	}
	defer conn.Close() //nolint:errcheck // A datagram is sent or not.
	_, _ = conn.Write([]byte(state))
}
