package rpc

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Guard keeps web pages of other origins away from an HTTP server. A browser lets any page post to any address: such
// requests are told by their headers. A page can also have its own name point at this machine, and then counts as the same
// origin: on a loopback address, only requests for a loopback name are answered, and for the names that are allowed besides.
func Guard(next http.Handler, addr net.Addr, allowedHosts []string) http.Handler {
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "muxpost does not take requests from pages of other origins", http.StatusForbidden)
	}))
	next = origins.Handler(next)
	if !isLoopback(addr) {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocalName(r.Host, allowedHosts) {
			http.Error(w, fmt.Sprintf("muxpost answers here only to loopback names, not to %q", r.Host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLoopback reports whether an address is a TCP address that only this machine can reach.
func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// isLocalName reports whether the host of a request, with or without a port, can only mean this machine.
func isLocalName(host string, allowed []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || slices.Contains(allowed, host)
}
