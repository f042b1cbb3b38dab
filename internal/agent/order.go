package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/agent/runner"
	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// Bounds of a request for a run.
const (
	mostParameters = 1 << 20 // bytes of JSON
	mostScope      = 64
	mostScopeValue = 16 << 10
	mostTags       = 64
	mostWord       = 4096 // bytes of a tag, a host's name, a folder
)

// An order is a request that was checked, or a resume by the coordinator.
type order struct {
	agent      string
	parameters map[string]any
	projectDir string
	scope      map[string]string
	labels     map[string]string
	demands    api.Demands
	mode       string
	// The session and the run that it is for, and the name of that agent.
	parent, parentRun, parentAgent string
	callback                       bool
	trace                          telemetry.Parent // what it is part of
	key, request                   string           // digests
}

// order checks a request. parent is the run that asks; nil for none.
func (s *Service) order(ctx context.Context, who identity.Principal, in NewRun) (o order, parent *run, err error) {
	if err := access.Need(who, api.RoleUser); err != nil {
		return o, nil, err
	}
	if parent, err = s.caller(ctx, who); err != nil {
		return o, nil, err
	}
	if in.Key != "" {
		if err := control.CheckKey(in.Key); err != nil {
			return o, nil, err
		}
		o.key, o.request = digest(keyOwner(who), in.Key), digest(string(encode(in.NewRun)))
	}
	if in.Agent == "" && in.Session == "" {
		return o, nil, control.Invalid("agent: name the agent to start, or a session to resume")
	}
	o.agent, o.labels, o.projectDir, o.scope, o.trace = in.Agent, in.Labels, in.ProjectDir, in.Scope, in.Trace.Valid()
	if o.parameters, err = parameters(in.NewRun); err != nil {
		return o, nil, err
	}
	if err := api.ValidLabels(in.Labels); err != nil {
		return o, nil, err
	}
	if err := checkScope(in.Scope); err != nil {
		return o, nil, err
	}
	if in.Demands != nil {
		o.demands = *in.Demands
		if err := checkDemands(o.demands); err != nil {
			return o, nil, err
		}
	}
	if o.projectDir != "" {
		if len(o.projectDir) > mostWord || !filepath.IsAbs(o.projectDir) {
			return o, nil, control.Invalid("project_dir: %q is no absolute path", control.Clip(o.projectDir))
		}
		o.projectDir = filepath.Clean(o.projectDir)
	}
	if err := needFolder(who, o.projectDir); err != nil {
		return o, nil, err
	}
	if parent == nil {
		if in.Mode != "" {
			return o, nil, control.Invalid("mode: only runs that an agent starts have one; leave it out, and wait for the run or ask for its result")
		}
		return o, nil, nil
	}
	if len(in.Scope) > 0 {
		return o, nil, refused(http.StatusForbidden, false, "scope: an agent gives those that it starts its own scope, and nothing else; leave it out")
	}
	o.parent, o.parentRun, o.parentAgent = parent.Session, parent.ID, parent.Agent
	o.trace = cmp.Or(o.trace, parent.d.Trace.context())
	switch o.mode = cmp.Or(in.Mode, api.ModeSync); {
	case !slices.Contains([]string{api.ModeSync, api.ModeAsyncPoll, api.ModeAsyncCallback}, o.mode):
		return o, nil, control.Invalid("mode: %q is none of sync, async_poll and async_callback", control.Clip(o.mode))
	case o.mode == api.ModeAsyncCallback && parent.d.Procedural:
		return o, nil, &api.Error{Kind: api.KindInvalid, Code: api.CodeNoResume, Message: "mode: agent " + parent.Agent + " is procedural, so it can't be resumed with a result; use sync or async_poll"}
	}
	return o, parent, nil
}

// parameters are those of a request, with its prompt among them.
func parameters(in api.NewRun) (map[string]any, error) {
	all := maps.Clone(in.Parameters)
	if all == nil {
		all = make(map[string]any)
	}
	if in.Prompt != "" {
		if was, ok := all["prompt"]; ok && was != in.Prompt {
			return nil, control.Invalid("prompt: parameters have another prompt; leave one of them out")
		}
		all["prompt"] = in.Prompt
	}
	b, err := json.Marshal(all)
	if err != nil {
		return nil, control.Invalid("parameters: %v", err)
	}
	if len(b) > mostParameters {
		return nil, control.Invalid("parameters: they have %d bytes of JSON and may have %d; put what is long into a file of the session", len(b), mostParameters)
	}
	return all, nil
}

func checkScope(scope map[string]string) error {
	if len(scope) > mostScope {
		return control.Invalid("scope: there are %d values and may be %d", len(scope), mostScope)
	}
	for k, v := range scope {
		if k == "" || len(k) > 128 || len(v) > mostScopeValue {
			return control.Invalid("scope: %q: a key has 1 to 128 bytes, and a value at most %d", control.Clip(k), mostScopeValue)
		}
	}
	return nil
}

func checkDemands(d api.Demands) error {
	if len(d.Tags) > mostTags {
		return control.Invalid("demands.tags: there are %d and may be %d", len(d.Tags), mostTags)
	}
	for _, word := range append([]string{d.Hostname, d.ProjectDir, d.ExecutorType}, d.Tags...) {
		if len(word) > mostWord {
			return control.Invalid("demands: %q has %d bytes and may have %d", control.Clip(word), len(word), mostWord)
		}
	}
	return nil
}

// prepare resolves the blueprint of an order and makes a run of it, which is not stored.
func (s *Service) prepare(ctx context.Context, o order, id string, sess *session, resume bool) (*run, Resolved, error) {
	if err := s.admitted(ctx, sess); err != nil {
		return nil, Resolved{}, err
	}
	agent, scope := o.agent, maps.Clone(sess.d.Scope)
	if resume {
		agent, o.projectDir = sess.Agent, sess.d.ProjectDir
	}
	if scope == nil {
		scope = make(map[string]string)
	}
	maps.Copy(scope, o.scope)
	res, err := s.o.Blueprints.Resolve(ctx, agent, Input{
		Run: id, Session: sess.ID, Resume: resume, Callback: o.callback, Parameters: o.parameters, Scope: scope,
		ProjectDir: o.projectDir, Parent: o.parent, ParentAgent: o.parentAgent, Owner: sess.Owner, Pinned: sess.d.Pinned,
	})
	if err != nil {
		return nil, res, err
	}
	sess.d.ProjectDir = o.projectDir
	r := &run{Run: store.Run{ID: id, Session: sess.ID, Agent: res.Name, Owner: sess.Owner, Parent: o.parent}, d: runData{
		Blueprint: res.Resolved, Mode: o.mode, ParentRun: o.parentRun, ParentAgent: o.parentAgent, Labels: o.labels,
		Procedural: res.Procedural, Limits: lower(res.Limits, s.bounds.Load().Limits), Key: o.key, Request: o.request,
		Trace: runTrace{Asked: o.trace, Span: s.o.Tracing.Reserve(o.trace)},
	}}
	r.d.Blueprint.Parameters = nil
	if room := sess.d.Room; room != nil {
		r.d.Limits.Depth = min(r.d.Limits.Depth, *room)
	}
	if r.d.Demands, err = JoinDemands(res.Demands, o.demands); err != nil {
		return nil, res, err
	}
	r.d.Job = executor.Job{
		Run: id, Session: sess.ID, Resume: resume, Parameters: res.Parameters, ProjectDir: o.projectDir,
		Agent: executor.Agent{Name: res.Name, Description: res.Description, Result: res.Result}, Metadata: metadata(o),
	}
	r.d.World = runner.World{Session: sess.ID, Owner: sess.Owner, Pinned: sess.d.Pinned, Labels: sess.d.Labels, Made: res.Made, Parent: sess.Parent}
	return r, res, checkServers(res)
}

// checkServers refuses a blueprint of which two servers would have one name in the world.
func checkServers(res Resolved) error {
	for _, name := range slices.Sorted(maps.Keys(res.Servers)) {
		if own, ok := res.Servers[res.Servers[name].Ref]; ok && own.Ref == "" {
			ref := res.Servers[name].Ref
			return &api.Error{Kind: api.KindInvalid, Status: http.StatusBadRequest, Code: api.CodeServerRef, Server: ref,
				Message: "mcp_servers of agent " + res.Name + ": " + ref + " is a server of the blueprint's own, and " + name + " refers to the server of that name in the config; rename the first"}
		}
	}
	return nil
}

// metadata is what the coordinator knows of a run's surroundings.
func metadata(o order) map[string]any {
	m := make(map[string]any)
	for k, v := range map[string]string{"parent_session_id": o.parent, "parent_agent_name": o.parentAgent, "project_dir": o.projectDir} {
		if v != "" {
			m[k] = v
		}
	}
	return m
}

// JoinDemands are both: all the tags, and properties that may not differ.
func JoinDemands(a, b api.Demands) (api.Demands, error) {
	out := api.Demands{Tags: slices.Concat(a.Tags, b.Tags)}
	slices.Sort(out.Tags)
	out.Tags = slices.Compact(out.Tags)
	for _, p := range []struct {
		name string
		a, b string
		to   *string
	}{{"hostname", a.Hostname, b.Hostname, &out.Hostname}, {"project_dir", a.ProjectDir, b.ProjectDir, &out.ProjectDir}, {"executor_type", a.ExecutorType, b.ExecutorType, &out.ExecutorType}} {
		if p.a != "" && p.b != "" && p.a != p.b {
			return out, control.Invalid("demands.%s: %q and %q are demanded, by the blueprint, the request or its header; a runner has one", p.name, control.Clip(p.a), control.Clip(p.b))
		}
		*p.to = cmp.Or(p.a, p.b)
	}
	return out, nil
}

// lower are the limits of a blueprint, which are never above those of the config, and
// those where it says nothing.
func lower(l, most blueprint.Limits) blueprint.Limits {
	of := func(l, most int) int { return min(cmp.Or(l, most), most) }
	time := cmp.Or(l.Time, most.Time)
	if most.Time > 0 {
		time = min(time, most.Time)
	}
	return blueprint.Limits{Depth: of(l.Depth, most.Depth), Children: of(l.Children, most.Children), Runs: of(l.Runs, most.Runs), Time: time}
}

// real is a path without symbolic links, as far as it is there.
func real(path string) string {
	if found, err := filepath.EvalSymlinks(path); err == nil {
		return found
	}
	return path
}

// within reports whether a folder is another one, or in it.
func within(dir, of string) bool {
	dir, of = path.Clean(filepath.ToSlash(dir)), path.Clean(filepath.ToSlash(of))
	return dir == of || of == "/" || strings.HasPrefix(dir, of+"/")
}
