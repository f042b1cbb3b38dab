package access

import (
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/identity"
)

// Rules are those of a config.
func Rules(cfg *config.Config) []identity.Rule {
	rules := make([]identity.Rule, 0, len(cfg.Auth.Rules))
	for _, r := range cfg.Auth.Rules {
		rate := r.Rate.Filled()
		rules = append(rules, identity.Rule{
			Principals: r.Principals, Claims: r.Claims, Role: r.Role, Servers: r.Servers,
			Tools: r.Tools, Prompts: r.Prompts, Resources: r.Resources, Exec: r.Exec,
			Rate: identity.Rate{Calls: rate.Calls, Burst: rate.Burst},
		})
	}
	return rules
}

// Owner is the owner of a session by the rules of a config, as Owners has it.
func Owner(cfg *config.Config, name string, pinned []byte) identity.Principal {
	return identity.NewGuard(identity.Options{Rules: Rules(cfg), Separator: cfg.Separator}).Owner(name, pinned)
}

// Owners says by the rules of a config whether a member is to be started for the
// owner of a session, of whom there is what identity.Pin noted, or only the name.
func Owners(cfg *config.Config) func(name string, pinned []byte, member string) bool {
	guard := identity.NewGuard(identity.Options{Rules: Rules(cfg), Separator: cfg.Separator})
	return func(name string, pinned []byte, member string) bool {
		return Starts(guard.Owner(name, pinned), member)
	}
}
