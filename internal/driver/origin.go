package driver

import (
	"net"
	"net/url"
	"strings"
)

// Origin is a URL's scheme, host and port. The port is always there, so that a default
// port may be written or not. Credentials are for one origin.
func Origin(u *url.URL) string {
	scheme := strings.ToLower(u.Scheme)
	port := u.Port()
	if port == "" {
		port = "80"
		if scheme == "https" {
			port = "443"
		}
	}
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
