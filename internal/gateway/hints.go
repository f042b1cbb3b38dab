package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent"
	"github.com/tine-mcp/tine/internal/identity"
)

// Headers that an agent may send with what it asks about agents. They narrow it; whose
// request it is, and what it may do, the token says.
const (
	headerAgentSession = "X-Agent-Session-Id"   // must be the token's
	headerAgentTags    = "X-Agent-Tags"         // agents without all of these are not there
	headerDemands      = "X-Additional-Demands" // JSON, of the runs that are started
)

type hints struct {
	tags    []string
	demands *api.Demands
}

// hintsIn reads the headers of a request; nil is one that has none.
func hintsIn(from *http.Request, who identity.Principal) (h hints, err error) {
	if from == nil {
		return h, nil
	}
	for _, id := range from.Header.Values(headerAgentSession) {
		if id != "" && id != who.Session {
			return h, &api.Error{Kind: api.KindRefused, Status: http.StatusForbidden,
				Message: headerAgentSession + " names " + clip(id) + ", and the token is for " + cmp.Or(who.Session, "no session") + "; send the token of a run of that session"}
		}
	}
	for tag := range strings.SplitSeq(strings.Join(from.Header.Values(headerAgentTags), ","), ",") {
		if tag = strings.TrimSpace(tag); tag != "" {
			h.tags = append(h.tags, tag)
		}
	}
	switch all := from.Header.Values(headerDemands); {
	case len(all) > 1:
		return h, invalid("%s stands more than once", headerDemands)
	case len(all) == 1 && all[0] != "":
		d := json.NewDecoder(strings.NewReader(all[0]))
		d.DisallowUnknownFields()
		h.demands = new(api.Demands)
		err := d.Decode(h.demands)
		if err == nil && d.More() {
			err = errors.New("something stands behind it")
		}
		if err != nil {
			return h, invalid("%s: it must be a JSON object with tags, hostname, project_dir or executor_type: %s", headerDemands, jsonMistake(err))
		}
	}
	return h, nil
}

// admits reports whether an agent has all the tags.
func (h hints) admits(a api.Agent) bool {
	return !slices.ContainsFunc(h.tags, func(tag string) bool { return !slices.Contains(a.Tags, tag) })
}

// agentsFor lists the agents that a request may start.
func (g *Gateway) agentsFor(ctx context.Context, who identity.Principal, from *http.Request) (api.AgentList, error) {
	h, err := hintsIn(from, who)
	if err != nil {
		return api.AgentList{}, err
	}
	list, err := g.o.Agents.Agents(ctx, who)
	list.Agents = slices.DeleteFunc(list.Agents, func(a api.Agent) bool { return !h.admits(a) })
	return list, err
}

// agentFor is one of them.
func (g *Gateway) agentFor(ctx context.Context, who identity.Principal, from *http.Request, name string) (api.Agent, error) {
	h, err := hintsIn(from, who)
	if err != nil {
		return api.Agent{}, err
	}
	return g.agentWith(ctx, who, h, name)
}

func (g *Gateway) agentWith(ctx context.Context, who identity.Principal, h hints, name string) (api.Agent, error) {
	a, err := g.o.Agents.Agent(ctx, who, name)
	if err == nil && !h.admits(a) {
		err = &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound,
			Message: "agent " + clip(name) + " has not all the tags of " + headerAgentTags + ": " + strings.Join(h.tags, ", ")}
	}
	return a, err
}

// startFor starts a run for a request, which is part of its trace.
func (g *Gateway) startFor(ctx context.Context, who identity.Principal, from *http.Request, in agent.NewRun) (api.Run, error) {
	h, err := hintsIn(from, who)
	if err != nil {
		return api.Run{}, err
	}
	if in.Trace.Traceparent == "" && from != nil {
		in.Trace = traceOf(from.Header)
	}
	if len(h.tags) > 0 {
		name := in.Agent
		if in.Session != "" {
			s, err := g.o.Agents.Session(ctx, who, in.Session)
			if err != nil {
				return api.Run{}, err
			}
			name = s.Agent
		}
		if _, err := g.agentWith(ctx, who, h, name); err != nil {
			return api.Run{}, err
		}
	}
	if h.demands != nil {
		both := *h.demands
		if in.Demands != nil {
			if both, err = agent.JoinDemands(both, *in.Demands); err != nil {
				return api.Run{}, err
			}
		}
		in.Demands = &both
	}
	return g.o.Agents.Start(ctx, who, in)
}
