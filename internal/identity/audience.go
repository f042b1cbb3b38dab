package identity

import (
	"net"
	"net/url"
	"slices"
	"strings"
)

// canonical writes a URL in the one form in which it can be compared as text. A
// URL that could be read in more than one way has none.
func canonical(s string) (string, bool) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return "", false
	}
	if u.RawQuery != "" || u.ForceQuery || strings.Contains(s, "#") {
		return "", false
	}
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "" || u.Scheme == "http" && port == "80" || u.Scheme == "https" && port == "443" {
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
	} else {
		host = net.JoinHostPort(host, port)
	}
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	if path != "" {
		for segment := range strings.SplitSeq(path[1:], "/") {
			plain, err := url.PathUnescape(segment)
			if err != nil || plain == "" || plain == "." || plain == ".." {
				return "", false
			}
		}
	}
	return u.Scheme + "://" + host + path, true
}

// under reports whether a URL is another one or lies below it, by whole
// segments. Both are canonical.
func under(child, parent string) bool {
	rest, ok := strings.CutPrefix(child, parent)
	return ok && (rest == "" || rest[0] == '/')
}

// audiences decides which audiences a token must have.
type audiences struct {
	listed []string // by the config; then nothing else counts
	public string   // canonical; empty where the gateway has no public URL
}

// fit picks those of a token's audiences that are this gateway or a part of it.
// Listed ones make every resource accessible: all is true.
//
// Without a public URL the resource comes from the caller's Host header, and a
// token for another server must not get in by naming that server there; so only
// loopback names are accepted.
func (a audiences) fit(aud []string) (fits []string, all bool) {
	for _, one := range aud {
		if len(a.listed) > 0 {
			if slices.Contains(a.listed, one) {
				return nil, true
			}
			continue
		}
		c, ok := canonical(one)
		if !ok {
			continue
		}
		if a.public != "" && under(c, a.public) || a.public == "" && loopback(c) {
			fits = append(fits, c)
		}
	}
	return fits, false
}

// covers reports whether one of the fitting audiences is a resource or lies above
// it.
func covers(fits []string, resource string) bool {
	if len(fits) == 0 {
		return false
	}
	// The gateway nearly always passes canonical resources.
	if !strings.Contains(resource, "/.") && !strings.Contains(resource, "%") {
		for _, f := range fits {
			if under(resource, f) {
				return true
			}
		}
	}
	c, ok := canonical(resource)
	return ok && slices.ContainsFunc(fits, func(f string) bool { return under(c, f) })
}

func loopback(canonicalURL string) bool {
	u, err := url.Parse(canonicalURL)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
