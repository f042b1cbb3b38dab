package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/sandbox"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/telemetry"
)

func newServeCmd(c *cli) *cobra.Command {
	var o serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the gateway",
		Long: `Runs the gateway: one MCP endpoint in front of every server in the config.

Without a config the gateway has seven built-in servers: files, memory and sqlite
with one instance per session; time, fetch and everything; and rollout, the tools
for sessions, at /mcp/rollout. A config is tine.yaml, or a file with mcpServers
from Claude Desktop, Claude Code, Cursor or VS Code. The gateway reloads it when
it changes.

On SIGTERM or Ctrl-C the gateway refuses new calls, waits for calls in progress,
and stops every server that it started. With --keep-instances it leaves them
running for the next gateway on the same state folder; use it when a supervisor
restarts Tine.`,
		Example: `  tine serve
  tine serve --config .mcp.json
  tine serve --config tine.yaml --listen 127.0.0.1:9000`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.serve(cmd.Context(), o, c.welcome)
		},
	}
	o.add(cmd)
	return cmd
}

// serveFlags say how to run a gateway.
type serveFlags struct {
	config, listen string
	keep           bool
	orchestrate    bool // no flag: a command of its own
}

func (o *serveFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "", "config file (env TINE_CONFIG; default tine.yaml in the current folder or in the user's config folder)")
	f.StringVar(&o.listen, "listen", "", "address to listen on, overrides the config (port 0 for any free port)")
	f.BoolVar(&o.keep, "keep-instances", false, "leave servers running for the next gateway when this one stops")
}

// loadConfig reads the config that serve and stdio use.
func (c *cli) loadConfig(path, listen string) (*config.Config, error) {
	cfg, err := config.Load(path, c.serveOptions())
	if err != nil {
		return nil, err
	}
	if listen != "" {
		cfg.Listen = listen
	}
	return cfg, nil
}

// serveOptions let the service decide whether the address may be served: the state
// folder, which it opens, may hold tokens.
func (c *cli) serveOptions() config.Options {
	o := c.configOptions()
	o.OtherAuth = true
	return o
}

func (c *cli) serve(ctx context.Context, o serveFlags, welcome func(*service)) error {
	path, err := c.findConfig(o.config)
	if err != nil {
		return err
	}
	state, err := c.stateDir()
	if err != nil {
		return err
	}
	load := func() (*config.Config, error) { return c.loadConfig(path, o.listen) }
	cfg, err := load()
	if err != nil {
		return err
	}
	redact := telemetry.NewRedactor()
	redact.Set(cfg.Secrets())
	log := telemetry.NewLogger(c.stderr, cfg.Log.Level, cfg.Log.Format, redact)
	warnAll(log, cfg)
	p, err := newService(ctx, serviceOptions{
		Config: cfg, Load: load, Options: c.serveOptions(), State: state, StateFlag: c.stateFlag(state),
		Listen: true, Keep: o.keep, Orchestrate: o.orchestrate, Version: c.version, Redact: redact, Log: log,
	})
	if err != nil {
		return err
	}
	defer p.Close()
	welcome(p)
	return p.Run(ctx)
}

func warnAll(log *slog.Logger, cfg *config.Config) {
	for _, w := range warnings(cfg) {
		log.Warn(w)
	}
}

func warnings(cfg *config.Config) []string {
	return slices.Concat(sandbox.Warnings(enabled(cfg), cfg.SandboxBinary), cfg.Warnings)
}

// welcome says what runs and what to do next.
func (c *cli) welcome(p *service) {
	cfg := p.cfg
	from := cfg.Path
	if from == "" {
		from = "the built-in defaults"
	}
	mcp := p.url + "/mcp"
	if cfg.PublicURL != "" {
		mcp = cfg.PublicURL + "/mcp"
	}
	fmt.Fprintf(c.stdout, "Tine %s listens at %s\n\n", c.version, mcp)
	fmt.Fprintf(c.stdout, "  servers   %s, from %s\n", serverNames(cfg), from)
	fmt.Fprintf(c.stdout, "  state     %s\n\n", p.o.State)
	fmt.Fprint(c.stdout, clients(cfg, mcp, p.gateway.Open()))
	own := func(command string) string { return withFlag(c.named(command), p.o.StateFlag) }
	fmt.Fprintf(c.stdout, "Try it:\n\n  %s\n  %s\n  %s\n\n", own("tine tools"), own("tine call "+firstCall(cfg)), own("tine calls --follow"))
	fmt.Fprint(c.stdout, shares(cfg))
	if forks(cfg, p.plugins.drivers) {
		fmt.Fprintf(c.stdout, "Open a world of its own, and fork it with all that is in it:\n\n  %s\n  %s\n\n", own("tine session open"), own("tine session fork ID --count 3"))
	}
}

// clients says how clients connect. If /mcp has the tools of rollouts and no other, as in
// a RewardKit config, its clients are training programs, and no agent should connect
// there. Clients log in by themselves if there is an issuer.
func clients(cfg *config.Config, mcp string, open bool) string {
	auth, header := "", ""
	if !open && cfg.Auth.OIDC == nil {
		auth = ` --header "Authorization: Bearer $TINE_TOKEN"`
		header = `, "headers": {"Authorization": "Bearer ${TINE_TOKEN}"}`
	}
	for i := range cfg.Servers {
		if s := &cfg.Servers[i]; s.ID == cfg.DefaultView && s.Controls() {
			text := "Connect what runs rollouts, such as a client of RewardKit, to this URL:\n\n  " + mcp + "?errors=protocol\n\n"
			if auth != "" {
				text += "with the header\n\n  Authorization: Bearer $TINE_TOKEN\n\n"
			}
			return text
		}
	}
	return fmt.Sprintf("Connect Claude Code:\n\n  claude mcp add --transport http tine %s%s\n\n", mcp, auth) +
		fmt.Sprintf("Any other client, in its mcpServers:\n\n  {\"mcpServers\": {\"tine\": {\"type\": \"http\", \"url\": %q%s}}}\n\n", mcp, header)
}

// shares says what connections share of the configured servers; empty for nothing to
// say.
func shares(cfg *config.Config) string {
	var programs bool
	var kept []string
	for _, s := range cfg.Servers {
		switch {
		case !s.Enabled || s.Disabled != "" || s.Scope != config.ScopeSession:
		case s.Builtin == "":
			programs = true
		case s.Workspace || s.Builtin == "memory" || s.Builtin == "sqlite":
			kept = append(kept, s.ID)
		}
	}
	if len(kept) > 8 {
		kept = append(kept[:8:8], fmt.Sprintf("%d more", len(kept)-8))
	}
	var lines []string
	switch {
	case !programs && len(kept) == 0:
		return ""
	case cfg.Sessions.Implicit == config.ImplicitShared:
		lines = []string{"All connections of a principal share one session, with all that its servers remember. /mcp?session=NAME is one apart."}
	default:
		if programs {
			lines = append(lines, "Each connection has programs of its own, which start when they are called and end when it has left.")
		}
		if len(kept) > 0 {
			lines = append(lines, "All connections of a principal share what is in "+allOf(kept)+", and it stays.")
		}
	}
	return strings.Join(lines, "\n") + "\n\n"
}

func serverNames(cfg *config.Config) string {
	names := ""
	for i, s := range cfg.Servers {
		if i == 8 && len(cfg.Servers) > 9 {
			return fmt.Sprintf("%s and %d more", names, len(cfg.Servers)-8)
		}
		if i > 0 {
			names += ", "
		}
		names += s.ID
		if !s.Enabled || s.Disabled != "" {
			names += " (off)"
		}
	}
	if names == "" {
		return "none"
	}
	return names
}

// forks reports whether a session has something of its own that a fork carries.
func forks(cfg *config.Config, drivers map[string]driver.Driver) bool {
	return slices.ContainsFunc(cfg.Servers, func(s config.Server) bool {
		e := catalog.Entry{Server: s, Runner: drivers[s.Driver]}
		on, _ := e.On()
		return on && e.Own() && e.Remembers() && s.Fork != config.ForkRefuse
	})
}

// firstCall is a call that probably works with the configured servers.
func firstCall(cfg *config.Config) string {
	for _, s := range cfg.Servers {
		if s.Builtin == "time" && s.Enabled && s.Disabled == "" {
			return s.ID + cfg.Separator + "get_current_time timezone=Europe/Vienna"
		}
	}
	for _, s := range cfg.Servers {
		if !s.Enabled || s.Disabled != "" || s.Controls() {
			continue
		}
		switch s.Front {
		case "":
			return s.ID + cfg.Separator + "TOOL key=value"
		case s.ID: // its tools have no prefix
			return "rlm_exec code='1 + 1'"
		}
		return s.ID + cfg.Separator + "rlm_exec code='1 + 1'"
	}
	return "SERVER" + cfg.Separator + "TOOL key=value"
}
