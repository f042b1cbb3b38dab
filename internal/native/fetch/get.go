package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/tine-mcp/tine/internal/publicnet"
)

// maxRedirects is how many hops a page may take.
const maxRedirects = 10

// getter gets pages as the settings allow.
type getter struct {
	autonomous   string // the user agent that acts for a model
	manual       string // and the one that acts for a person
	ignoreRobots bool
	maxBytes     int64
	timeout      time.Duration
	net          publicnet.Options
}

func newGetter(s Settings) (*getter, error) {
	g := &getter{
		autonomous:   agentAutonomous,
		manual:       agentManual,
		ignoreRobots: s.IgnoreRobots,
		maxBytes:     s.MaxBytes,
		timeout:      time.Duration(s.Timeout),
		net:          publicnet.Options{AllowPrivate: s.AllowPrivate},
	}
	if s.UserAgent != "" {
		g.autonomous, g.manual = s.UserAgent, s.UserAgent
	}
	for _, c := range []byte(s.UserAgent) {
		if c < ' ' || c == 0x7f {
			return nil, errors.New("settings.user_agent must not contain control characters")
		}
	}
	if s.MaxBytes < 1 {
		return nil, fmt.Errorf("settings.max_bytes must be at least 1, not %d", s.MaxBytes)
	}
	if s.Timeout <= 0 {
		return nil, fmt.Errorf("settings.timeout must be more than zero, not %s", g.timeout)
	}
	if s.Proxy != "" {
		u, err := url.Parse(s.Proxy)
		// The URL may hold a password, so it is not repeated.
		if err != nil || u.Host == "" {
			return nil, errors.New("settings.proxy must be a URL such as http://proxy.example:3128")
		}
		switch u.Scheme {
		case "http", "https", "socks5", "socks5h":
		default:
			return nil, fmt.Errorf("settings.proxy must be an http, https or socks5 URL, not %q", u.Scheme)
		}
		g.net.Proxy = u
	}
	return g, nil
}

// get fetches a page and returns it ready for a model, with what to say before
// it. An autonomous get obeys robots.txt, of every host on the way.
func (g *getter) get(ctx context.Context, u *url.URL, raw, autonomous bool) (prefix, content string, err error) {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	client := publicnet.NewClient(g.net)
	defer client.CloseIdleConnections()

	agent, asks := g.manual, false
	if autonomous {
		agent, asks = g.autonomous, !g.ignoreRobots
	}
	if asks {
		if err := g.robotsAllow(ctx, client, u, agent); err != nil {
			return "", "", err
		}
	}
	page := *client
	page.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return fmt.Errorf("it redirects more than %d times", maxRedirects)
		}
		if asks {
			return g.robotsAllow(ctx, client, req.URL, agent)
		}
		return nil
	}
	p, err := load(ctx, &page, u, agent, g.maxBytes)
	if err == nil && p.cut {
		err = errTooLarge
	}
	if err != nil {
		return "", "", g.explain(u, err)
	}
	if p.status >= 400 {
		return "", "", fmt.Errorf("failed to fetch %s - status code %d", u, p.status)
	}
	text := p.text()
	if p.isHTML(text) && !raw {
		return "", markdown(text, p.url), nil
	}
	return fmt.Sprintf("Content type %s cannot be simplified to markdown, but here is the raw content:\n", p.contentType), text, nil
}

// response is what a server answered.
type response struct {
	url         *url.URL // after redirects
	status      int
	contentType string
	body        []byte
	cut         bool // the body goes on
}

var errTooLarge = errors.New("the page is too large")

// load gets a URL and at most max bytes of its body, counted after
// decompression.
func load(ctx context.Context, client *http.Client, u *url.URL, agent string, max int64) (*response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", agent)
	req.Header.Set("Accept", "*/*")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	n, err := b.ReadFrom(io.LimitReader(resp.Body, max))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	cut := false
	if n == max {
		more, _ := io.ReadFull(resp.Body, make([]byte, 1))
		cut = more > 0
	}
	return &response{
		url:         resp.Request.URL,
		status:      resp.StatusCode,
		contentType: resp.Header.Get("Content-Type"),
		body:        b.Bytes(),
		cut:         cut,
	}, nil
}

// explain words a failure for the model: whose fault it is and what could be
// done about it.
func (g *getter) explain(u *url.URL, err error) error {
	var refused *refusal
	if errors.As(err, &refused) {
		return refused
	}
	// Go's own wrapping repeats the method and the URL.
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	var blocked *publicnet.Blocked
	switch {
	case errors.As(err, &blocked):
		return fmt.Errorf("refused to fetch %s: %w; settings.allow_private of the fetch server would allow it", u, blocked)
	case errors.Is(err, errTooLarge):
		return fmt.Errorf("failed to fetch %s: it is larger than %d bytes, the limit that settings.max_bytes sets", u, g.maxBytes)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("failed to fetch %s: it took longer than %s, the limit that settings.timeout sets", u, g.timeout)
	}
	return fmt.Errorf("failed to fetch %s: %w", u, err)
}
