package issuertest

import (
	"crypto/rand"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// A grant is what the person approved.
type grant struct {
	client    string
	subject   string
	scope     string
	resources []string
	family    string // of refresh tokens that came from one another

	redirect  string // of a code, with its challenge and end
	challenge string
	expires   time.Time
}

// serveAuthorize approves at once. Until it is certain that the redirect belongs to
// the client, errors are shown to the person; after that they are sent to the
// client.
func (i *Issuer) serveAuthorize(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		http.Error(w, "the form can't be read", http.StatusBadRequest)
		return
	}
	q := r.Form
	i.mu.Lock()
	client, known := i.clients[q.Get("client_id")]
	subject, denying := i.subject, i.denying
	i.mu.Unlock()
	if !known {
		http.Error(w, "no such client", http.StatusBadRequest)
		return
	}
	redirect := q.Get("redirect_uri")
	if redirect == "" && len(client.Redirects) == 1 {
		redirect = client.Redirects[0]
	}
	if !slices.ContainsFunc(client.Redirects, func(known string) bool { return sameRedirect(known, redirect) }) {
		http.Error(w, "the redirect is not one of this client", http.StatusBadRequest)
		return
	}
	back := func(answer url.Values) {
		u, _ := url.Parse(redirect) // it matched one that parses
		query := u.Query()
		for k, v := range answer {
			query[k] = v
		}
		query.Set("iss", i.URL())
		if state := q.Get("state"); state != "" {
			query.Set("state", state)
		}
		u.RawQuery = query.Encode()
		http.Redirect(w, r, u.String(), http.StatusFound)
	}
	fail := func(code, description string) {
		back(url.Values{"error": {code}, "error_description": {description}})
	}
	switch {
	case q.Get("response_type") != "code":
		fail("unsupported_response_type", "response_type must be code")
		return
	case q.Get("code_challenge") == "" || q.Get("code_challenge_method") != "S256":
		fail("invalid_request", "a code_challenge with the method S256 is needed")
		return
	case denying:
		fail("access_denied", "the person said no")
		return
	}
	for _, resource := range q["resource"] {
		if !validResource(resource) {
			fail("invalid_target", "a resource must be an absolute URL without a fragment")
			return
		}
	}
	code := rand.Text()
	i.mu.Lock()
	i.codes[code] = grant{
		client: client.ID, subject: subject, scope: i.granted(q.Get("scope")), resources: q["resource"], family: rand.Text(),
		redirect: q.Get("redirect_uri"), challenge: q.Get("code_challenge"), expires: i.opts.Now().Add(time.Minute),
	}
	i.mu.Unlock()
	back(url.Values{"code": {code}})
}

func validResource(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.IsAbs() && u.Host != "" && u.Fragment == "" && !strings.Contains(s, "#")
}

// granted is the part of a wanted scope that exists.
func (i *Issuer) granted(want string) string {
	if len(i.opts.Scopes) == 0 {
		return want
	}
	if strings.TrimSpace(want) == "" {
		return strings.Join(i.opts.Scopes, " ")
	}
	got := slices.DeleteFunc(strings.Fields(want), func(s string) bool {
		return s != "openid" && s != "offline_access" && !slices.Contains(i.opts.Scopes, s)
	})
	return strings.Join(got, " ")
}

// sameRedirect compares exactly, but for the port of a loopback address, which
// programs choose as they start.
func sameRedirect(known, got string) bool {
	if known == got {
		return true
	}
	k, err := url.Parse(known)
	if err != nil {
		return false
	}
	g, err := url.Parse(got)
	if err != nil || !isLoopback(k.Hostname()) || k.Hostname() != g.Hostname() {
		return false
	}
	k.Host, g.Host = "", ""
	return k.String() == g.String()
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
