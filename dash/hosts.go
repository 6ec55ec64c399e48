package dash

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// errHost is the answer to a request under another name. Its page would need a style sheet, which is refused, too.
const errHost = "This dashboard doesn't answer under the host name of this address. If the name is yours, add it to Options.Hosts of package dash " +
	"(worqr serve: --host NAME); otherwise open the dashboard at localhost or an IP address."

// answers reports whether the dashboard answers under the Host of a request. A web page can make its own name
// resolve to the dashboard's address, and then read and post like a page of the dashboard. Only the name shows it.
func (o *Options) answers(r *http.Request) bool {
	host := hostname(r.Host)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || len(o.Hosts) == 0 && (o.Authorize != nil || r.Context().Value(loggedIn{}) != nil) {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil || slices.ContainsFunc(o.Hosts, func(h string) bool { return h == "*" || hostname(h) == host })
}

// hostname returns the name in a Host, in one form: without the port, brackets and a dot at its end.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
