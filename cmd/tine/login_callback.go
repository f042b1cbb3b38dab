package main

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
)

// callbackPath is the path of the redirect, unless one with another was registered.
const callbackPath = "/callback"

// callback listens on loopback for the redirect of one login. It answers GET of its
// own path under its own name and nothing else, and refuses requests without the
// login's state without ending the wait: any page in a browser can send requests
// here.
type callback struct {
	redirect  *url.URL
	listeners []net.Listener
	servers   []*http.Server
	wg        sync.WaitGroup
	state     string // empty where the login has none that could be seen
	got       chan string
}

// listenCallback listens where a redirect points, on any port with port 0. The port
// is taken, but no request is answered before serve.
func listenCallback(ctx context.Context, redirect *url.URL) (*callback, error) {
	host, port := redirect.Hostname(), redirect.Port()
	if redirect.Scheme != "http" || !loopbackName(host) {
		return nil, fmt.Errorf("the redirect %s is not on this machine's loopback", redirect.Redacted())
	}
	if port == "" {
		port = "80"
	}
	addresses := []string{host}
	if strings.EqualFold(host, "localhost") {
		addresses = []string{"127.0.0.1", "::1"} // a browser may choose either
	}
	cb := &callback{got: make(chan string, 1)}
	var lc net.ListenConfig
	for i, a := range addresses {
		l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(a, port))
		if err != nil && i > 0 {
			break // one of them is enough
		}
		if err != nil {
			return nil, err
		}
		cb.listeners = append(cb.listeners, l)
	}
	at := *redirect
	if port == "0" {
		_, port, _ = net.SplitHostPort(cb.listeners[0].Addr().String())
		at.Host = net.JoinHostPort(host, port)
	}
	cb.redirect = &at
	return cb, nil
}

func loopbackName(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}

// serve answers until close.
func (cb *callback) serve(state string) {
	cb.state = state
	for _, l := range cb.listeners {
		s := &http.Server{
			Handler:           cb,
			ReadHeaderTimeout: 10 * time.Second,
			WriteTimeout:      10 * time.Second,
			MaxHeaderBytes:    64 << 10,
			ErrorLog:          log.New(io.Discard, "", 0), // errors of unrelated clients are not logged
		}
		cb.servers = append(cb.servers, s)
		cb.wg.Go(func() { _ = s.Serve(l) }) // it ends with close
	}
}

// close stops serving and waits; a page that is being sent is still sent. It may be
// called twice.
func (cb *callback) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, s := range cb.servers {
		if err := s.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
			_ = s.Close()
		}
	}
	for _, l := range cb.listeners {
		_ = l.Close() // listeners that were not served
	}
	cb.wg.Wait()
}

func (cb *callback) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer") // the address holds the code
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Connection", "close")
	switch {
	case !strings.EqualFold(r.Host, cb.redirect.Host):
		page(w, http.StatusMisdirectedRequest, "Not here", "This address answers under its own name only.")
	case r.URL.Path != cb.path():
		page(w, http.StatusNotFound, "Not here", "Tine waits for a login at another address.")
	case r.Method != http.MethodGet:
		h.Set("Allow", http.MethodGet)
		page(w, http.StatusMethodNotAllowed, "Not so", "Tine waits for the redirect of a login.")
	case wrongAnswer(r.URL.Query(), cb.state):
		page(w, http.StatusBadRequest, "Not this login", "This is not the answer to the login that Tine waits for. Start the login again from the terminal.")
	default:
		select {
		case cb.got <- r.URL.RawQuery:
		default:
			page(w, http.StatusGone, "Done already", "This login was answered already. You can close this window.")
			return
		}
		if r.URL.Query().Get("error") != "" {
			page(w, http.StatusOK, "Not logged in", "The login was refused. You can close this window; the terminal says more.")
			return
		}
		page(w, http.StatusOK, "Almost there", "You can close this window and go back to the terminal.")
	}
}

func (cb *callback) path() string {
	if cb.redirect.Path == "" {
		return "/"
	}
	return cb.redirect.Path
}

// wrongAnswer reports whether a query can't be the answer to the login with this
// state.
func wrongAnswer(q url.Values, state string) bool {
	return state != "" && q.Get("state") != state || q.Get("code") == "" && q.Get("error") == ""
}

func page(w http.ResponseWriter, status int, title, text string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Tine: %[1]s</title>\n<h1>%[1]s</h1>\n<p>%[2]s</p>\n</html>\n",
		html.EscapeString(title), html.EscapeString(text))
}
