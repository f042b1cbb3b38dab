package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
)

// An orchestrator runs instances. There are two: one is an API over HTTP, the
// other an MCP server whose tools do the same.
type orchestrator interface {
	// make sends the request of an entry, several times where that helps, and
	// returns what came of it; parts of that also with an error. doubt says that
	// something may have been made all the same.
	make(ctx context.Context, e *entry, m *making) (got made, doubt bool, err error)
	// remove removes what an entry names. What is not there is removed.
	remove(ctx context.Context, e *entry) error
	// call calls a tool of an instance, and list lists them. Both are raw: what
	// goes in are the arguments and the params, what comes out is the result.
	call(ctx context.Context, e *entry, tool string, arguments []byte) ([]byte, error)
	list(ctx context.Context, e *entry, params []byte) ([]byte, error)
	// check looks that it answers and lets us in, and makes nothing.
	check(ctx context.Context) error
	// health is what it says of itself; nil where it says nothing bad.
	health(ctx context.Context) error
}

// made is what an orchestrator answers.
type made struct {
	id, instance    string
	endpoint, token string
	more            []string // ids of instances that were not asked for
}

// none reports whether there is nothing to remove.
func (m *made) none() bool { return m.id == "" && len(m.more) == 0 }

// errLocked is what is known of an orchestrator whose credentials are not.
var errLocked = errors.New("its credentials are not known yet; they are when the server is next used")

// open returns the orchestrator of an access. What it uses is given back with
// the function.
func (d *Driver) open(a *access) (orchestrator, func(), error) {
	authorize := d.authorizer(a)
	if a.Authorized && authorize == nil {
		return nil, nil, fmt.Errorf("server %q: %s: %w", a.Server, shown(a.base), errLocked)
	}
	m := &mask{}
	for _, values := range a.Header {
		for _, v := range values {
			m.learn(v)
		}
	}
	m.learnQuery(a.base)
	c, release, err := d.client(a.Server, a.base, a.route(), m, authorize)
	if err != nil {
		return nil, nil, err
	}
	w := &web{server: a.Server, http: c, header: a.Header, mask: m, timeout: a.Remote.Timeout, attempts: a.Remote.Attempts}
	if a.Remote.Type == TypeMCP {
		t := &toolbox{access: a, limit: d.maxFrame, mask: m, talk: newTalk(w, a.base, d.maxFrame)}
		return t, func() { t.talk.close(); release() }, nil
	}
	return &rest{d: d, access: a, web: w}, release, nil
}

// authorizer returns what puts an orchestrator's credentials on requests: what
// the spec gave, or what an earlier one did. Where headers were enough they are.
func (d *Driver) authorizer(a *access) wrapper {
	if !a.Authorized {
		return nil
	}
	key := a.Server + " " + driver.Origin(a.base)
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.authorize != nil {
		d.learned[key] = a.authorize
		return a.authorize
	}
	if w := d.learned[key]; w != nil || d.o.Authorize == nil {
		return w
	}
	return d.o.Authorize(a.Server)
}

// creation is the body of a request for an instance.
type creation struct {
	Resource string          `json:"resource_type_identifier"`
	Count    int             `json:"num_instances"`
	Session  *string         `json:"session_id"`
	Scoping  string          `json:"instance_scoping"`
	Template json.RawMessage `json:"template_details"`
}

// Scopings of an instance.
const (
	scopingSession = "session"
	scopingShared  = "shared_global"
)

// newEntry is the intent to have an instance made.
func newEntry(a access, spec driver.Spec, key string, template json.RawMessage) (*entry, error) {
	e := &entry{
		Key: key, Kind: kindInstance, At: time.Now().UTC(), Session: spec.Session, Access: a, Path: a.Remote.Create,
	}
	body := any(creation{a.Remote.Resource, 1, nil, scopingShared, template})
	switch {
	case a.Remote.Type == TypeMCP:
		e.Path = a.Remote.CreateTool
		body = backends{Backends: []backend{{a.Remote.Resource, 1, template}}}
	case spec.Session != "":
		body = creation{a.Remote.Resource, 1, &spec.Session, scopingSession, template}
	}
	var err error
	if e.Body, err = json.Marshal(body); err != nil {
		return nil, fmt.Errorf("server %q: its template can't be sent: %w", spec.Server, err)
	}
	return e, nil
}

// template is what an instance begins with: the details as they are, or the name
// of something.
func template(spec driver.Spec) json.RawMessage {
	if len(spec.Details) > 0 {
		return spec.Details
	}
	if spec.Template == "" {
		return nil
	}
	b, _ := json.Marshal(spec.Template) // a string always can be
	return b
}
