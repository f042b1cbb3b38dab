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

func checkURL(o Object, key string, dst *string) {
	n := o.Get(key)
	u, err := url.Parse(*dst)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		o.Wrong(key, n, "%s is not an absolute http or https URL; write it like https://mcp.example.org/mcp", n.Shown())
	case u.Fragment != "":
		o.Wrong(key, n, "has a fragment (#...), which is never sent; remove it")
	}
}

// readHeaders reads headers over those of dst.
func readHeaders(o Object, key string, dst *map[string]string) bool {
	d := o.d
	var given map[string]string
	if !o.TextMap(key, &given, `{Authorization: "Bearer ${TOKEN}"}`) {
		return false
	}
	seen := map[string]string{}
	for _, p := range o.n.Get("headers").Pairs {
		name := http.CanonicalHeaderKey(p.Key)
		switch {
		case !headerName.MatchString(p.Key):
			d.fail(p.KeyPos, "%s.headers: %q can't name a header", o.Path, Clip(p.Key))
		case slices.Contains(ownHeaders, name):
			d.fail(p.KeyPos, "%s.headers: %s is set by Tine itself; remove it", o.Path, name)
		case seen[name] != "":
			d.fail(p.KeyPos, "%s.headers: %s and %s are the same header; keep one", o.Path, seen[name], p.Key)
		case strings.ContainsAny(p.Value.Text, "\r\n\x00"):
			d.fail(p.Value.Pos, "%s.headers.%s: a header is one line", o.Path, p.Key)
		}
		seen[name] = p.Key
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

// secretURL is a URL that secrets travel to: https, or http on this machine.
func secretURL(example string) Value[string] {
	return Text(example).As("https URL").By(func(o Object, key string, dst *string) bool {
		return o.Text(key, dst, example) && o.safeURL(key, *dst, example)
	})
}

func (o Object) safeURL(key, text, example string) bool {
	n := o.n.Get(key)
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		o.Wrong(key, n, "%s is not an absolute https URL; write it like %s", n.Shown(), example)
	case u.Scheme == "http" && !LoopbackHost(u.Hostname()):
		o.Wrong(key, n, "%s would be spoken to unencrypted; use https, as plain http is for loopback addresses alone", n.Shown())
	case u.User != nil || u.Fragment != "":
		o.Wrong(key, n, "must be a URL without user and fragment; write it like %s", example)
	default:
		return true
	}
	return false
}

// LoopbackHost reports whether a host is this machine only.
func LoopbackHost(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
