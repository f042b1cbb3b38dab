package gateway_test

import (
	"context"
	"net/http"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/store"
)

// oneAgent is the blueprint "worker", whose runs wait for a runner that there is not.
type oneAgent struct{}

func (oneAgent) Resolve(_ context.Context, name string, in agent.Input) (agent.Resolved, error) {
	if name != "worker" {
		return agent.Resolved{}, &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: "there is no agent " + name}
	}
	return agent.Resolved{Resolved: blueprint.Resolved{Name: name, Executor: "none", Parameters: in.Parameters, Scope: in.Scope}}, nil
}

func (oneAgent) Finished(context.Context, []blueprint.Command, api.Run) error { return nil }

func (oneAgent) List(context.Context) ([]api.Agent, error) {
	return []api.Agent{{Name: "worker", Executor: "none"}}, nil
}

func (oneAgent) CloseWorld(context.Context, string) error { return nil }

// coordinator opens the agents of a world.
func (w *world) coordinator(ctx context.Context) *agent.Service {
	s, err := agent.Open(ctx, agent.Options{
		Store: w.db, Blueprints: oneAgent{}, Worlds: oneAgent{}, Told: func([]store.Event) { w.hub.Wrote() },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.plugins = append(w.plugins, closer(s.Close))
	return s
}
