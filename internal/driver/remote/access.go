package remote

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/routes"
)

// instanceMark stands for an instance's id in the paths of a config.
const instanceMark = "{remote_instance_id}"

type wrapper = func(http.RoundTripper) http.RoundTripper

// access is where an orchestrator is and what it is shown. It is written down
// with everything that was made there, so that the next gateway can remove it.
type access struct {
	Server string      `json:"server"`
	Remote Config      `json:"remote"`
	Header http.Header `json:"header,omitempty"`
	CAFile string      `json:"ca_file,omitempty"`
	// Authorized is whether headers alone don't let us in. How to be let in can't
	// be written down.
	Authorized bool `json:"authorized,omitempty"`

	base      *url.URL // without credentials
	authorize wrapper
}

// accessOf takes it from a spec, with the config's defaults.
func accessOf(spec driver.Spec) (access, error) {
	if options(spec) == nil {
		return access{}, fmt.Errorf("server %q: no orchestrator is given; set servers.%s.remote.url", spec.Server, spec.Server)
	}
	a := access{
		Server: spec.Server, Remote: *options(spec), Header: spec.Header.Clone(), CAFile: spec.CAFile,
		Authorized: spec.Authorize != nil, authorize: spec.Authorize,
	}
	if err := a.complete(); err != nil {
		return access{}, fmt.Errorf("server %q: %w", spec.Server, err)
	}
	return a, nil
}

// complete fills in what was left out, and checks the rest.
func (a *access) complete() error {
	r := &a.Remote
	r.Type = cmp.Or(r.Type, TypeHTTP)
	r.Create = cmp.Or(r.Create, "/instances")
	r.Delete = cmp.Or(r.Delete, "/instances/"+instanceMark)
	r.CreateTool = cmp.Or(r.CreateTool, "initialize_session")
	r.CallTool = cmp.Or(r.CallTool, "call_backend_tool")
	r.ListTool = cmp.Or(r.ListTool, "list_backend_tools")
	r.DeleteTool = cmp.Or(r.DeleteTool, "cleanup_session")
	r.Timeout = cmp.Or(r.Timeout, 30*time.Second)
	r.ConnectTimeout = cmp.Or(r.ConnectTimeout, 5*time.Second)
	r.Attempts = cmp.Or(max(r.Attempts, 0), 3)
	if r.Type != TypeHTTP && r.Type != TypeMCP {
		return fmt.Errorf("remote type %q is unknown; set servers.%s.remote.type to http or mcp", r.Type, a.Server)
	}
	if r.Type == TypeMCP && (r.Fork != "" || r.Snapshot != "") {
		return fmt.Errorf("an orchestrator of type mcp can't fork; remove servers.%s.remote.fork and snapshot", a.Server)
	}
	for key, path := range map[string]string{"delete": r.Delete, "call": r.Call, "fork": r.Fork, "snapshot": r.Snapshot} {
		if path != "" && !strings.Contains(path, instanceMark) {
			return fmt.Errorf("servers.%s.remote.%s must have %s in it; %q has not", a.Server, key, instanceMark, path)
		}
	}
	u, err := webURL(r.URL)
	if err != nil {
		return fmt.Errorf("the orchestrator's URL %w; mend servers.%s.remote.url", err, a.Server)
	}
	if a.Header == nil {
		a.Header = make(http.Header)
	}
	if u.User != nil && a.Header.Get("Authorization") == "" {
		// URLs are shown and logged, headers are not.
		a.Header.Set("Authorization", basic(u.User))
	}
	u.User = nil
	a.base = u
	return nil
}

// instead is the access to use for something that was made with an old one: the
// newer credentials are the better ones, as long as it is still the same place.
func (a access) instead(old access) access {
	if a.base == nil || driver.Origin(a.base) != driver.Origin(old.base) || a.Remote.Type != old.Remote.Type {
		return old
	}
	return a
}

// route is the way to the orchestrator, and to what it makes.
func (a *access) route() routes.Route {
	return routes.Route{CAFile: a.CAFile, Connect: a.Remote.ConnectTimeout}
}

func basic(u *url.Userinfo) string {
	password, _ := u.Password()
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password))
}

// webURL reads a URL of the web. Its errors don't repeat it: it may hold secrets.
func webURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, errors.New("is missing")
	}
	u, err := url.Parse(text)
	var parse *url.Error
	if errors.As(err, &parse) {
		err = parse.Err
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("can't be read: %w", err)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("must begin with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("names no host")
	}
	u.Fragment = ""
	return u, nil
}

// at is the URL of a path below the base, of an instance where it names one.
func (a *access) at(path, id string) (*url.URL, error) {
	if strings.Contains(path, instanceMark) {
		path = strings.ReplaceAll(path, instanceMark, url.PathEscape(id))
	}
	base := *a.base
	base.RawQuery = ""
	u, err := url.Parse(strings.TrimRight(base.String(), "/") + "/" + strings.TrimLeft(path, "/"))
	if err != nil {
		return nil, fmt.Errorf("the path %q can't be read", path)
	}
	u.RawQuery = strings.Trim(u.RawQuery+"&"+a.base.RawQuery, "&")
	return u, nil
}

// shown is a URL as it may be shown.
func shown(u *url.URL) string {
	s := *u
	s.User, s.RawQuery, s.Fragment = nil, "", ""
	return s.String()
}

// maxID bounds what an orchestrator may call its instances.
const maxID = 512

// checkID refuses a name that would be another path, or can't be shown.
func checkID(id string) error {
	switch {
	case id == "":
		return errors.New("it names no instance")
	case len(id) > maxID:
		return fmt.Errorf("its name is longer than %d bytes", maxID)
	case id == "." || id == "..":
		return fmt.Errorf("its name %q would be another path", id)
	case strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }):
		return errors.New("its name has characters in it that can't be shown")
	}
	return nil
}

// options are those of a spec; nil where it is of another driver.
func options(spec driver.Spec) *Config { return driver.Options[Config](spec) }
