package upstream

import (
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/tine-mcp/tine/internal/driver"
)

// maxRedirects is how many redirects a request follows.
const maxRedirects = 10

// post sends a request with a body and follows redirects by itself, since each
// address may get the request once at most. A 307 or 308 within the origin says
// to send the same elsewhere. All others may mean that the request was taken,
// or would make it a GET: they are a *statusError with the address in it.
// Nothing is remembered, as the config is what says where a server is.
func post(ep *driver.Endpoint, req *http.Request, m mask) (*http.Response, error) {
	next := ep.Client.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	var via []*http.Request
	for {
		resp, err := next.RoundTrip(req)
		if err != nil || resp.StatusCode < 300 || resp.StatusCode >= 400 || resp.Header.Get("Location") == "" {
			return resp, err
		}
		resp.Body.Close()
		to, err := req.URL.Parse(resp.Header.Get("Location"))
		if err != nil {
			// Not its text, which quotes the request.
			return nil, &statusError{code: resp.StatusCode, elsewhere: "an address that can't be read"}
		}
		via = append(via, req)
		if req, err = redirected(ep, req, via, resp.StatusCode, to, m); err != nil {
			return nil, err
		}
	}
}

// redirected is the request for the target of a redirect, or why it is not followed.
func redirected(ep *driver.Endpoint, req *http.Request, via []*http.Request, code int, to *url.URL, m mask) (*http.Request, error) {
	shown := *to
	shown.User, shown.RawQuery, shown.Fragment = nil, "", ""
	no := &statusError{code: code, elsewhere: m.excerpt([]byte(shown.String()))}
	if code != http.StatusTemporaryRedirect && code != http.StatusPermanentRedirect || driver.Origin(to) != driver.Origin(req.URL) {
		return nil, no
	}
	to.Fragment = ""
	been := func(r *http.Request) bool { return r.URL.String() == to.String() }
	if len(via) > maxRedirects || slices.ContainsFunc(via, been) {
		no.text = "redirects without an end"
		return nil, no
	}
	again := req.Clone(req.Context())
	again.URL, again.Host = to, ""
	if check := ep.Client.CheckRedirect; check != nil && check(again, via) != nil {
		return nil, no
	}
	if req.GetBody == nil {
		return nil, errors.New("the server redirects a request whose body can't be had again")
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	again.Body = body
	return again, nil
}
