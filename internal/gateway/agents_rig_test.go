package gateway_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/agent/hook"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
)

// oneAgent is the blueprint "worker", whose runs wait for a runner that there is not, beside
// those of a Book.
type oneAgent struct{ *agent.Book }

func (b oneAgent) Resolve(ctx context.Context, name string, in agent.Input) (agent.Resolved, error) {
	if name != "worker" {
		return b.Book.Resolve(ctx, name, in)
	}
	return agent.Resolved{Resolved: blueprint.Resolved{Name: name, Executor: "none", Parameters: in.Parameters, Scope: in.Scope}}, nil
}

func (b oneAgent) List(ctx context.Context, who identity.Principal) ([]api.Agent, error) {
	all, err := b.Book.List(ctx, who)
	all = append(all, api.Agent{Name: "worker", Executor: "none"})
	slices.SortFunc(all, func(a, b api.Agent) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

func (oneAgent) CloseWorld(context.Context, string) error { return nil }

// coordinator opens the agents of a world. Its blueprints in files are in its folder agents.
func (w *world) coordinator(ctx context.Context, cfg *config.Config) (*agent.Service, *agent.Book) {
	hooks, err := hook.New(hook.Options{Dir: filepath.Join(w.dir, "hooks")})
	if err != nil {
		w.t.Fatal(err)
	}
	folders := blueprint.Folders{filepath.Join(w.dir, "agents")}
	book := agent.NewBook(agent.BookOptions{
		Store: blueprint.NewStore(func() blueprint.Folders { return folders }, agent.Documents(w.db)), Hooks: hooks,
		Agents: func() config.Agents { return cfg.Agents }, Getenv: os.LookupEnv,
		Servers: func() (ids []string) {
			for i := range cfg.Servers {
				ids = append(ids, cfg.Servers[i].ID)
			}
			return ids
		},
		Starts: access.Owners(cfg),
		Log:    w.log.Logger(),
	})
	s, err := agent.Open(ctx, agent.Options{
		Store: w.db, Blueprints: oneAgent{book}, Worlds: oneAgent{}, Told: func([]store.Event) { w.hub.Wrote() },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.plugins = append(w.plugins, closer(s.Close))
	return s, book
}
