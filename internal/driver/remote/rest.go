package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/tine-mcp/tine/internal/wire"
)

// rest is an orchestrator that is an API over HTTP.
type rest struct {
	d      *Driver
	access *access
	web    *web
}

var _ orchestrator = (*rest)(nil)

// snapshotPath is where the snapshots of an orchestrator are discarded.
const snapshotPath = "/snapshots/" + instanceMark

// make implements orchestrator. One time is not cut off when it is slow: an
// answer that comes late tells what is to be removed.
func (r *rest) make(ctx context.Context, e *entry, m *making) (got made, doubt bool, err error) {
	u, err := r.access.at(e.Path, e.Of)
	if err != nil {
		return made{}, false, err
	}
	sent := e.Asked > 0
	a, err := r.web.again(ctx, func(ctx context.Context) (answer, error) {
		ctx, done := m.attempt(ctx, r.web.timeout)
		defer done()
		a, err := r.web.once(ctx, http.MethodPost, u, e.Key, e.Body, maxAnswer)
		var f *fault
		if errors.As(err, &f) {
			switch {
			case !f.harmless(sent):
				doubt = true
			case !f.unsent && !f.passing() && !f.locked():
				doubt = false // it has seen the key, and has nothing for it
			}
		}
		sent = true
		return a, m.wanted(err)
	})
	if err != nil {
		return made{}, doubt, err
	}
	got, err = r.read(e, a.body)
	if err != nil {
		return got, got.none(), &fault{what: "POST " + shown(u), status: a.status, excerpt: r.web.mask.excerpt(a.body), err: err}
	}
	return got, false, nil
}

// read reads the answer to a request that makes something.
func (r *rest) read(e *entry, body []byte) (made, error) {
	if e.Kind == kindSnapshot {
		var s struct {
			ID json.RawMessage `json:"snapshot_id"`
		}
		if err := json.Unmarshal(body, &s); err != nil {
			return made{}, errors.New("which is not a snapshot")
		}
		id := idText(s.ID)
		if err := checkID(id); err != nil {
			return made{}, fmt.Errorf("which is not a snapshot: %w", err)
		}
		return made{id: id}, nil
	}
	got, err := readInstances(body)
	if err != nil {
		return got, err
	}
	r.web.mask.learn(got.token)
	if got.endpoint != "" {
		at, err := r.access.base.Parse(got.endpoint)
		if err == nil {
			at, err = webURL(at.String())
		}
		if err != nil {
			return made{more: append(got.more, got.id)}, errors.New("whose mcp_endpoint_url is none")
		}
		got.endpoint = at.String()
	} else if r.access.Remote.Call == "" {
		return made{more: append(got.more, got.id)}, fmt.Errorf("which has no mcp_endpoint_url; set servers.%s.remote.call where calls go through the orchestrator", e.Access.Server)
	}
	return got, nil
}

// maxMade bounds how many instances one answer may name.
const maxMade = 1000

// readInstances reads a list of instances, or one. The first is what was asked
// for; the others are only named, to be removed.
func readInstances(body []byte) (made, error) {
	type instance struct {
		ID       json.RawMessage `json:"remote_instance_id"`
		Endpoint string          `json:"mcp_endpoint_url"`
		Instance json.RawMessage `json:"instance_id"`
		Token    string          `json:"access_token"`
	}
	var list []instance
	if err := json.Unmarshal(body, &list); err != nil {
		var one instance
		if json.Unmarshal(body, &one) != nil {
			return made{}, errors.New("which is not a list of instances")
		}
		list = []instance{one}
	}
	var got made
	var bad error
	for _, in := range list[:min(len(list), maxMade)] {
		id := idText(in.ID)
		if err := checkID(id); err != nil {
			bad = err
			continue
		}
		if got.id != "" {
			got.more = append(got.more, id)
			continue
		}
		got.id, got.instance, got.endpoint, got.token = id, idText(in.Instance), in.Endpoint, in.Token
	}
	switch {
	case len(list) == 0:
		return made{}, errors.New("which is an empty list of instances")
	case got.id == "":
		return made{}, fmt.Errorf("which is not an instance: %w", bad)
	}
	return got, nil
}

// idText reads a name, which some APIs write as a number.
func idText(raw json.RawMessage) string {
	if s, ok := wire.Unquote(raw); ok {
		return s
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil {
		return n.String()
	}
	return ""
}

// remove implements orchestrator.
func (r *rest) remove(ctx context.Context, e *entry) error {
	path := r.access.Remote.Delete
	if e.Kind == kindSnapshot {
		path = snapshotPath
	}
	for _, id := range append([]string{e.ID}, e.More...) {
		if id == "" {
			continue
		}
		u, err := r.access.at(path, id)
		if err != nil {
			return err
		}
		if _, err := r.web.send(ctx, http.MethodDelete, u, "", nil); err != nil && !forgotten(err) {
			return err
		}
	}
	return nil
}

// call implements orchestrator.
func (r *rest) call(ctx context.Context, e *entry, tool string, arguments []byte) ([]byte, error) {
	u, err := r.access.at(r.access.Remote.Call, e.ID)
	if err != nil {
		return nil, err
	}
	body := append(wire.AppendQuote([]byte(`{"tool_name":`), tool), `,"arguments":`...)
	body = append(append(body, arguments...), '}')
	// Neither bounded nor repeated: how long a call may take, and whether it may
	// be made twice, is not known here.
	a, err := r.web.once(ctx, http.MethodPost, u, "", body, r.d.maxFrame)
	if forgotten(err) && r.forgot(ctx, e, false) {
		return nil, lost(e, err)
	}
	if err != nil {
		return nil, err
	}
	result, err := readResult(a.body)
	if err != nil {
		return nil, &fault{what: "POST " + shown(u), status: a.status, excerpt: r.web.mask.excerpt(a.body), err: err}
	}
	return result, nil
}

// forgot asks for a second opinion on whether an instance is gone: a 404 may mean the
// tool, or come from a proxy. An API that does not let instances be looked at has none;
// where the first opinion was no 404, it must say so for sure.
func (r *rest) forgot(ctx context.Context, e *entry, sure bool) bool {
	u, err := r.access.at(r.access.Remote.Delete, e.ID)
	if err != nil {
		return false
	}
	ctx, cancel := r.web.within(ctx)
	defer cancel()
	_, err = r.web.once(ctx, http.MethodGet, u, "", nil, maxAnswer)
	if sure {
		return forgotten(err)
	}
	var f *fault
	return errors.As(err, &f) && f.status >= 400 && f.status < 500 && !f.locked() && !f.passing()
}

// list implements orchestrator. The API has no list of tools: an instance that
// has an endpoint of its own is asked there, and one that has none shows nothing,
// though every tool that it has can be called.
func (r *rest) list(ctx context.Context, e *entry, params []byte) ([]byte, error) {
	if e.Endpoint == "" {
		return []byte(`{"tools":[]}`), nil
	}
	at, err := r.d.reach(e)
	if err != nil {
		return nil, err
	}
	defer at.release()
	w := &web{server: e.Access.Server, http: at.client, header: at.header, mask: at.mask, timeout: r.web.timeout}
	t := newTalk(w, at.url, r.d.maxFrame)
	defer t.close()
	result, err := t.request(ctx, wire.MethodListTools, params, "")
	return wire.OneLine(result), err
}

// check implements orchestrator: any answer but a refusal will do.
func (r *rest) check(ctx context.Context) error {
	if r.access.Remote.Health != "" {
		return r.health(ctx)
	}
	err := r.get(ctx, r.access.Remote.Create)
	var f *fault
	if errors.As(err, &f) && f.status >= 400 && f.status < 500 && !f.locked() {
		return nil // it does not say what there is, but it answers
	}
	return err
}

// health implements orchestrator.
func (r *rest) health(ctx context.Context) error {
	if r.access.Remote.Health == "" {
		return nil
	}
	return r.get(ctx, r.access.Remote.Health)
}

func (r *rest) get(ctx context.Context, path string) error {
	u, err := r.access.at(path, "")
	if err != nil {
		return err
	}
	ctx, cancel := r.web.within(ctx)
	defer cancel()
	_, err = r.web.once(ctx, http.MethodGet, u, "", nil, maxAnswer)
	return err
}
