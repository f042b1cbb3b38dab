package config

import (
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// ownHeaders are set by the transport; a fixed value would break it.
var ownHeaders = []string{
	"Host", "Connection", "Content-Length", "Content-Type", "Transfer-Encoding", "Accept", "Last-Event-Id",
	"Mcp-Session-Id", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name",
}

func (d *decoder) url(o object, s *Server) {
	if o.text("url", &s.URL, "https://mcp.example.org/mcp") {
		n := o.n.get("url")
		u, err := url.Parse(s.URL)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			o.wrong("url", n, "%s is not an absolute http or https URL; write it like https://mcp.example.org/mcp", n.quoted())
		case u.Fragment != "":
			o.wrong("url", n, "has a fragment (#...), which is never sent; remove it")
		}
	}
	o.oneOf("transport", &s.Transport, transports...)
	if o.text("ca_file", &s.CAFile, "ca.pem") {
		s.CAFile = d.res.paths.resolve(s.CAFile)
	}
	d.headers(o, &s.Headers)
}

// headers reads headers over those that are there.
func (d *decoder) headers(o object, dst *map[string]string) bool {
	var given map[string]string
	if !o.textMap("headers", &given, `{Authorization: "Bearer ${TOKEN}"}`) {
		return false
	}
	seen := map[string]string{}
	for _, p := range o.n.get("headers").pairs {
		name := http.CanonicalHeaderKey(p.key)
		switch {
		case !headerName.MatchString(p.key):
			d.fail(p.keyPos, "%s.headers: %q can't name a header", o.path, clip(p.key))
		case slices.Contains(ownHeaders, name):
			d.fail(p.keyPos, "%s.headers: %s is set by Tine itself; remove it", o.path, name)
		case seen[name] != "":
			d.fail(p.keyPos, "%s.headers: %s and %s are the same header; keep one", o.path, seen[name], p.key)
		case strings.ContainsAny(p.value.text, "\r\n\x00"):
			d.fail(p.value.pos, "%s.headers.%s: a header is one line", o.path, p.key)
		}
		seen[name] = p.key
	}
	// Upper and lower case make no other header.
	for name, v := range *dst {
		if seen[http.CanonicalHeaderKey(name)] == "" {
			given[name] = v
		}
	}
	*dst = given
	return true
}

// hasHeader reports whether headers set this one.
func hasHeader(headers map[string]string, name string) bool {
	for h := range headers {
		if strings.EqualFold(h, name) {
			return true
		}
	}
	return false
}

// secretURL reads a URL that secrets travel to: https, or http on this machine.
func (o object) secretURL(key string, dst *string, example string) bool {
	if !o.text(key, dst, example) {
		return false
	}
	n := o.n.get(key)
	u, err := url.Parse(*dst)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		o.wrong(key, n, "%s is not an absolute https URL; write it like %s", n.quoted(), example)
	case u.Scheme == "http" && !loopbackHost(u.Hostname()):
		o.wrong(key, n, "%s would be spoken to unencrypted; use https, as plain http is for loopback addresses alone", n.quoted())
	case u.User != nil || u.Fragment != "":
		o.wrong(key, n, "must be a URL without user and fragment; write it like %s", example)
	default:
		return true
	}
	return false
}

// loopbackHost reports whether a host is this machine and nobody else's.
func loopbackHost(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// quoted is like shown, without what a URL may hide.
func (n *node) quoted() string {
	c := *n
	if c.kind == kindString && c.from == "" {
		c.text = RedactURL(c.text)
	}
	return c.shown()
}
