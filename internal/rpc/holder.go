package rpc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// portHolder names the process that listens on a TCP port, as in `postgres (process 42)`, or "" where the system does not
// tell: not Linux, or a process of another user. It is a help for people and nothing is decided by it.
func portHolder(port string) string {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return ""
	}
	var links []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if data, err := os.ReadFile(table); err == nil {
			links = append(links, listeningSockets(string(data), number)...)
		}
	}
	if len(links) == 0 {
		return ""
	}
	handles, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return ""
	}
	for _, handle := range handles {
		link, err := os.Readlink(handle)
		if err != nil || !slices.Contains(links, link) {
			continue
		}
		pid := strings.Split(handle, "/")[2]
		name, err := os.ReadFile("/proc/" + pid + "/comm")
		if err != nil {
			continue
		}
		return fmt.Sprintf("%s (process %s)", strings.TrimSpace(string(name)), pid)
	}
	return ""
}

// listeningSockets returns the listening sockets on a port from a table of the kernel, as the links in /proc/PID/fd read.
func listeningSockets(table string, port uint64) []string {
	const listen = "0A"
	var links []string
	for line := range strings.Lines(table) {
		// sl local_address rem_address st tx:rx tr:tm retrnsmt uid timeout inode ...
		columns := strings.Fields(line)
		if len(columns) < 10 || columns[3] != listen {
			continue
		}
		_, hex, _ := strings.Cut(columns[1], ":")
		if local, err := strconv.ParseUint(hex, 16, 16); err == nil && local == port {
			links = append(links, "socket:["+columns[9]+"]")
		}
	}
	return links
}
