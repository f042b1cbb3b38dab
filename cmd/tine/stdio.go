package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/telemetry"
)

func newStdioCmd(c *cli) *cobra.Command {
	var path, server, view string
	var alone bool
	cmd := &cobra.Command{
		Use:   "stdio",
		Short: "Be an MCP server on standard input and output",
		Long: `Be an MCP server on standard input and output, for clients that start their
servers themselves.

It joins the gateway that runs on the same state folder, if it has the same
config; else it is a gateway of its own and ends with its client.`,
		Example: `  tine stdio
  tine stdio --config .mcp.json
  claude mcp add tine -- tine stdio`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if view != "" && view != "search" {
				return usagef("--view must be search")
			}
			return c.stdio(cmd.Context(), path, server, view, alone)
		},
	}
	f := cmd.Flags()
	f.StringVar(&path, "config", "", "config file (env TINE_CONFIG; default tine.yaml here or in the user's config folder)")
	f.StringVar(&server, "server", "", "show this server alone, without prefixes")
	f.StringVar(&view, "view", "", "search: two tools that find and call the others, instead of all of them")
	f.BoolVar(&alone, "alone", false, "never join a running gateway")
	return cmd
}

func (c *cli) stdio(ctx context.Context, flag, server, view string, alone bool) error {
	path, err := c.findConfig(flag)
	if err != nil {
		return err
	}
	state, err := c.stateDir()
	if err != nil {
		return err
	}
	if !alone {
		if run := c.running(ctx, state, path, flag != ""); run != nil {
			return newBridge(state, run, server, view, c.stdout).run(ctx, c.stdin)
		}
	}
	return c.stdioAlone(ctx, path, state, server, view)
}

// running finds a gateway to join: one that answers, and has the config that
// was asked for, if one was.
func (c *cli) running(ctx context.Context, state, path string, asked bool) *gatewayFile {
	g, err := readGatewayFile(state)
	if err != nil {
		return nil
	}
	if asked && !sameFile(path, g.Config) {
		return nil
	}
	cl, err := client.New(client.Options{URL: g.URL, Token: g.Token, HTTPClient: &http.Client{Transport: g.transport()}})
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

// stdioAlone is a whole gateway for one client, in a folder of its own under
// the state folder, which is gone afterwards.
func (c *cli) stdioAlone(ctx context.Context, path, state, server, view string) error {
	cfg, err := c.loadConfig(path, "")
	if err != nil {
		return err
	}
	redact := telemetry.NewRedactor()
	redact.Set(cfg.Secrets())
	log := telemetry.NewLogger(c.stderr, cfg.Log.Level, cfg.Log.Format, redact)
	warnAll(log, cfg)
	root := filepath.Join(state, "stdio")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	sweepStdio(ctx, root, log)
	own, err := os.MkdirTemp(root, "")
	if err != nil {
		return err
	}
	p, err := newService(ctx, serviceOptions{Config: cfg, State: own, StateFlag: stateFlag(own), Version: c.version, Redact: redact, Log: log})
	if err != nil {
		os.RemoveAll(own)
		return err
	}
	defer func() {
		p.Close()
		os.RemoveAll(own)
	}()
	return p.gateway.ServeStdio(ctx, c.stdin, c.stdout, server, view != "")
}

// sweepStdio ends what such gateways left that were killed: with no server in
// its config, a gateway on their folder adopts nothing and ends everything.
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
