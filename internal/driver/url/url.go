// Package url is the driver for servers that are reached and not run: an
// instance is an HTTP client that talks to one origin.
package url

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/routes"
)

// Driver reaches servers by URL. The zero value works. Instances with the same
// CA file share connections.
type Driver struct {
	pool routes.Pool
}

var _ driver.Driver = (*Driver)(nil)

// New returns a driver.
func New() *Driver { return &Driver{} }

// Info implements driver.Driver.
func (d *Driver) Info() driver.Info {
	return driver.Info{
		Name: "url", Scopes: []string{"shared", "session"},
		Transport: func(driver.Spec) string { return "http" },
		Address:   func(spec driver.Spec) string { return spec.URL },
		Mends: driver.Mends{
			Gone:   "check that it runs, and servers.ID.url",
			Locked: "servers.ID.headers or servers.ID.auth must hold what it wants",
			Moved:  "set servers.ID.url to that if it is right",
		},
	}
}

// Start implements driver.Driver. It checks what is given and reaches nothing.
func (d *Driver) Start(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	inst, err := d.start(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", spec.Server, err)
	}
	return inst, nil
}

func (d *Driver) start(ctx context.Context, spec driver.Spec) (*instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	u, err := parse(spec)
	if err != nil {
		return nil, err
	}
	header := spec.Header.Clone()
	if header == nil {
		header = make(http.Header)
	}
	if u.User != nil {
		// URLs are shown and logged, headers are not.
		if header.Get("Authorization") == "" {
			password, _ := u.User.Password()
			header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password)))
		}
		u.User = nil
	}
	transport := spec.Transport
	switch transport {
	case "":
		transport = "auto"
	case "auto", "streamable", "sse":
	default:
		return nil, fmt.Errorf("transport %q is unknown; set servers.%s.transport to auto, streamable or sse", transport, spec.Server)
	}
	t, release, err := d.pool.Transport(routes.Route{CAFile: spec.CAFile, Connect: connectTime, Public: spec.Public})
	if err != nil {
		return nil, fmt.Errorf("%w; mend servers.%s.ca_file", err, spec.Server)
	}
	i := &instance{
		handle:  driver.Handle{Driver: "url", Server: spec.Server, Session: spec.Session},
		release: release,
		done:    make(chan struct{}),
	}
	guard := &guard{server: spec.Server, url: u, origin: driver.Origin(u), next: t}
	var through http.RoundTripper = guard
	if spec.Authorize != nil {
		through = spec.Authorize(guard)
	}
	i.endpoint = driver.Endpoint{
		URL:       u.String(),
		Client:    &http.Client{Transport: through, CheckRedirect: guard.redirect},
		Header:    header,
		Transport: transport,
	}
	return i, nil
}

func parse(spec driver.Spec) (*url.URL, error) {
	if spec.URL == "" {
		return nil, fmt.Errorf("no URL is given; set servers.%s.url", spec.Server)
	}
	u, err := url.Parse(spec.URL)
	if err != nil {
		// The error of url.Parse repeats the URL, which may hold a password.
		var parseErr *url.Error
		if errors.As(err, &parseErr) {
			err = parseErr.Err
		}
		return nil, fmt.Errorf("the URL can't be read: %w; mend servers.%s.url", err, spec.Server)
	}
	u.Scheme = strings.ToLower(u.Scheme)
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("the URL %s must begin with http:// or https://; mend servers.%s.url", u.Redacted(), spec.Server)
	}
	if u.Hostname() == "" {
		return nil, fmt.Errorf("the URL %s names no host; mend servers.%s.url", u.Redacted(), spec.Server)
	}
	u.Fragment = ""
	return u, nil
}

// Adopt implements driver.Driver. There is nothing to adopt: Start again.
func (d *Driver) Adopt(_ context.Context, h driver.Handle, _ *slog.Logger) (driver.Instance, error) {
	return nil, fmt.Errorf("server %q: a server that is reached by URL has nothing to adopt: %w", h.Server, driver.ErrGone)
}

type instance struct {
	handle   driver.Handle
	endpoint driver.Endpoint
	release  func()
	once     sync.Once
	done     chan struct{}
}

var _ driver.Instance = (*instance)(nil)

func (i *instance) Handle() driver.Handle { return i.handle }

// Dial may be called as often as there are clients: an endpoint has no state.
func (i *instance) Dial(ctx context.Context) (driver.Link, error) {
	if err := ctx.Err(); err != nil {
		return driver.Link{}, err
	}
	select {
	case <-i.done:
		return driver.Link{}, fmt.Errorf("server %q: the instance is stopped", i.handle.Server)
	default:
	}
	e := i.endpoint
	e.Header = e.Header.Clone()
	return driver.Link{HTTP: &e}, nil
}

// Hold does nothing: what the server keeps is not ours to hold, and it is never
// forked.
func (i *instance) Hold(ctx context.Context) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("server %q can't be held: %w", i.handle.Server, err)
	}
	return func() {}, nil
}

func (i *instance) Done() <-chan struct{} { return i.done }

func (i *instance) Err() error { return nil }

func (i *instance) Logs(int64) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("")), nil
}

// Stop closes idle connections. Running requests end by their own contexts.
func (i *instance) Stop(context.Context) error {
	i.once.Do(func() {
		i.release()
		close(i.done)
	})
	return nil
}

// Leave is Stop: the server does not notice either.
func (i *instance) Leave() error { return i.Stop(context.Background()) }
