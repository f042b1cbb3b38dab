package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/internal/config"
)

func newOrchestratorCmd(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "orchestrator",
		Short: "Run servers for remote clients, with the remote orchestration API",
		Long: `An orchestrator runs MCP servers for remote clients: a client requests instances,
gets the MCP endpoint of each, and deletes them. Another Tine is such a client if
a server in its config has remote.url.`,
		Example: "  tine orchestrator serve",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(newOrchestratorServeCmd(c))
	return cmd
}

func newOrchestratorServeCmd(c *cli) *cobra.Command {
	o := serveFlags{orchestrate: true}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a gateway that speaks the remote orchestration API",
		Long: `Runs a gateway, as "tine serve" does, that also has the remote orchestration API:
POST /instances creates instances of a server in the config, each with its own
state, MCP endpoint and token. Instances can be forked, snapshotted, called and
deleted. /openapi.json describes the API.

An instance is a session with one server. The session commands list instances too,
and the session settings of the config apply to them: their number (sessions.max),
their lifetime (sessions.ttl, sessions.idle), and which principals may use which
servers (auth.rules). Instances survive a restart, with the same ids and tokens.

Authentication is the same as for "tine serve": without tokens the gateway accepts
every caller on this machine; with tokens every caller needs one. To listen on
addresses other than loopback it needs tokens, and TLS or a public_url.

If another gateway runs on this machine, the orchestrator needs its own state
folder (--state) and address (--listen).`,
		Example: `  tine orchestrator serve
  tine orchestrator serve --config servers.yaml --listen 127.0.0.1:7400
  tine orchestrator serve --state /var/lib/tine-orchestrator --listen 127.0.0.1:7400
  curl -d '{"resource_type_identifier":"memory"}' http://127.0.0.1:7400/instances`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.serve(cmd.Context(), o, c.welcomeCallers)
		},
	}
	o.add(cmd)
	return cmd
}

// welcomeCallers says where the orchestration API is and how to use it.
func (c *cli) welcomeCallers(p *service) {
	cfg := p.cfg
	from, url := cfg.Path, p.url
	if from == "" {
		from = "the built-in defaults"
	}
	if cfg.PublicURL != "" {
		url = cfg.PublicURL
	}
	fmt.Fprintf(c.stdout, "Tine %s serves the orchestration API at %s/instances\n\n", c.version, url)
	fmt.Fprintf(c.stdout, "  servers   %s, from %s\n", serverNames(cfg), from)
	fmt.Fprintf(c.stdout, "  state     %s\n", p.o.State)
	fmt.Fprintf(c.stdout, "  document  %s/openapi.json\n\n", url)
	header, auth := "", ""
	if !p.gateway.Open() {
		header = ` -H "Authorization: Bearer $TINE_TOKEN"`
		auth = "\n      headers: {Authorization: \"Bearer ${TINE_TOKEN}\"}"
	}
	id := firstResource(cfg)
	fmt.Fprintf(c.stdout, "Make an instance:\n\n  curl%s -d '{\"resource_type_identifier\":%q}' %s/instances\n\n", header, id, url)
	fmt.Fprintf(c.stdout, `Have another Tine run its servers here, in its tine.yaml:

  servers:
    %s:%s
      remote:
        url: %s
        resource: %s
        fork: /instances/{remote_instance_id}/fork
        snapshot: /instances/{remote_instance_id}/snapshot
        health: /health

Look at the instances:

  %s

`, id, auth, url, id, withFlag("tine session list", p.o.StateFlag))
}

// firstResource is a server that can have instances, preferably one with session
// scope.
func firstResource(cfg *config.Config) string {
	found := "SERVER"
	for i := range cfg.Servers {
		s := &cfg.Servers[i]
		if !s.Enabled || s.Disabled != "" || s.Controls() {
			continue
		}
		if s.Scope == config.ScopeSession {
			return s.ID
		}
		if found == "SERVER" {
			found = s.ID
		}
	}
	return found
}
