package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/listfiles"
	"github.com/tine-mcp/tine/internal/telemetry"
)

func newStdioCmd(c *cli) *cobra.Command {
	var o stdioFlags
	cmd := &cobra.Command{
		Use:   "stdio",
		Short: "Run an MCP server on standard input and output",
		Long: `Runs an MCP server on standard input and output, for clients that start their
servers themselves.

The command connects to the gateway that runs on the same state folder, unless
--config or TINE_CONFIG names a different config than that gateway has. Otherwise it
runs a temporary gateway, whose state is deleted when the client disconnects. The
token determines the principal; without a token it is the operator of this machine.
With --url or TINE_URL the command connects to that gateway, at /mcp, or at the path
and query of the URL, such as http://127.0.0.1:8463/mcp/memory?session=work.

--session joins the session with that name or id. It needs a running gateway,
because the state of a temporary one does not last.`,
		Example: `  tine stdio
  tine stdio --config .mcp.json
  tine stdio --session work
  tine stdio --url 'https://tools.example.com/mcp?session=work' --token-file token
  tine stdio --server memory --errors protocol
  claude mcp add tine -- tine stdio`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.flags.json = false // standard output is the client's
			return c.stdio(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "", "config file (env TINE_CONFIG; default tine.yaml in the current folder or in the user's config folder)")
	f.StringVar(&o.server, "server", "", "offer only this server, without name prefixes")
	f.StringVar(&o.errors, "errors", "", "how to report calls that fail outside of the tool: results, or protocol for JSON-RPC errors (default from the config)")
	f.StringVar(&o.view, "view", "", "search: offer two tools that find and call the others, instead of all tools")
	f.StringVar(&o.session, "session", "", "join this session of the gateway, by name or id; a named session is created at first use")
	f.BoolVar(&o.alone, "alone", false, "never connect to a running gateway")
	c.completeFlag(cmd, "session", c.completeSessionFlag)
	c.completeFlag(cmd, "errors", cobra.FixedCompletions([]string{config.ErrorsResults, config.ErrorsProtocol}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// stdioFlags say what a client on standard input and output sees.
type stdioFlags struct {
	config, server, errors, view, session string
	alone                                 bool
}

func (c *cli) stdio(ctx context.Context, o stdioFlags) error {
	switch o.errors {
	case "", config.ErrorsResults, config.ErrorsProtocol:
	default:
		return usagef("--errors wants %s or %s, got %q", config.ErrorsResults, config.ErrorsProtocol, o.errors)
	}
	if o.session != "" && o.alone {
		return usagef("--session and --alone exclude each other: a separate gateway ends with its sessions; give one")
	}
	if o.view != "" && o.view != "search" {
		return usagef("--view wants search, got %q", o.view)
	}
	named, err := c.namedGateway(o)
	if err != nil {
		return err
	}
	if named != "" {
		locate, err := c.locator(named, o)
		if err != nil {
			return err
		}
		return c.stdioJoined(ctx, locate, true)
	}
	path, err := c.findConfig(o.config)
	if err != nil {
		return err
	}
	state, err := c.stateDir()
	if err != nil {
		return err
	}
	token, err := c.namedToken()
	if err != nil {
		return err
	}
	asked := o.config != "" || c.getenv("TINE_CONFIG") != ""
	if g := c.running(ctx, state, path, asked); g != nil && !o.alone {
		if path != "" && !sameFile(path, g.Config) {
			fmt.Fprintf(c.stderr, "tine: joined the gateway that runs, process %d, with %s; %s is not used: --config %s would be a gateway of its own\n", g.PID, cmp.Or(g.Config, "the built-in defaults"), path, path)
		}
		return c.stdioJoined(ctx, func() (endpoint, error) {
			g, err := readGatewayFile(state)
			if err != nil {
				return endpoint{}, err
			}
			return endpointOf(g, token, o)
		}, o.session != "" || token != "")
	}
	if c.flags.token != "" || c.flags.tokenFile != "" {
		return usagef("a token needs a running gateway to join, and there is none to join on the state folder %s; start one with `tine serve`, or give --url", state)
	}
	if o.session != "" {
		return usagef("--session %s needs a running gateway to join, and there is none on the state folder %s with this config; start one with `tine serve`, or give --url", o.session, state)
	}
	return c.stdioAlone(ctx, path, state, o)
}

// stdioJoined relays to a running gateway. If the user named the session or gateway, a
// refusal by the gateway is reported before the first message of the client.
func (c *cli) stdioJoined(ctx context.Context, locate func() (endpoint, error), knock bool) error {
	b, err := newBridge(locate, c.stdout)
	if err != nil {
		return err
	}
	if knock {
		if err := b.knock(ctx); err != nil {
			return err
		}
	}
	return b.run(ctx, c.stdin)
}

// running finds a gateway to join: one that answers, and has the requested config,
// if there is one.
func (c *cli) running(ctx context.Context, state, path string, asked bool) *gatewayFile {
	g, err := readGatewayFile(state)
	if err != nil {
		return nil
	}
	if asked && !sameFile(path, g.Config) {
		return nil
	}
	cl, err := g.client()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := cl.Status(ctx); err != nil {
		return nil
	}
	return g
}

func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// stdioAlone is a whole gateway for one client, in its own folder under the state
// folder, which is removed afterwards. The lists of servers stay, for the next one.
func (c *cli) stdioAlone(ctx context.Context, path, state string, o stdioFlags) error {
	cfg, err := c.loadConfig(path, "")
	if err != nil {
		return err
	}
	if o.errors != "" { // as in the URL of an endpoint it overrides the config
		cfg.Errors = o.errors
		for i := range cfg.Servers {
			cfg.Servers[i].Errors = ""
		}
	}
	redact := telemetry.NewRedactor()
	redact.Set(cfg.Secrets())
	log := telemetry.NewLogger(c.stderr, cfg.Log.Level, cfg.Log.Format, redact)
	warnAll(log, cfg)
	place, err := os.Getwd()
	if err != nil {
		return err
	}
	root := filepath.Join(state, "stdio")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	sweepStdio(ctx, root, log)
	own, err := os.MkdirTemp(root, "")
	if err != nil {
		return err
	}
	p, err := newService(ctx, serviceOptions{
		Config: cfg, State: own, StateFlag: stateFlag(own), Lists: listfiles.Folder{Dir: filepath.Join(state, "lists"), Place: place},
		Version: c.version, Redact: redact, Log: log,
	})
	if err != nil {
		os.RemoveAll(own)
		return err
	}
	defer func() {
		p.Close()
		os.RemoveAll(own)
	}()
	return p.gateway.ServeStdio(ctx, c.stdin, c.stdout, o.server, o.view != "")
}

// sweepStdio ends what killed gateways of this kind left: with no server in its
// config, a gateway on their folder adopts nothing and ends everything.
func sweepStdio(ctx context.Context, root string, log *slog.Logger) {
	dirs, err := os.ReadDir(root)
	if err != nil {
		return
	}
	for _, d := range dirs {
		dir := filepath.Join(root, d.Name())
		empty := config.Default()
		empty.Servers = nil
		p, err := newService(ctx, serviceOptions{Config: empty, State: dir, StateFlag: stateFlag(dir), Log: log})
		if err != nil {
			if !errors.Is(err, store.ErrLocked) {
				log.Warn("leftovers of an earlier tine stdio were not swept", "folder", dir, "err", err)
			}
			continue
		}
		p.Close()
		os.RemoveAll(dir)
	}
}
