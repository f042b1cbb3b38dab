package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/confine"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/docker"
	"github.com/tine-mcp/tine/internal/driver/packages"
	"github.com/tine-mcp/tine/internal/driver/sandbox"
)

// doctorReport is tine doctor for programs.
type doctorReport struct {
	OK      bool             `json:"ok"`      // nothing that serve needs is broken
	Drivers []string         `json:"drivers"` // that work here
	Checks  []driver.Finding `json:"checks"`
}

func newDoctorCmd(c *cli) *cobra.Command {
	var flag string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine, the config and the running gateway",
		Long: `Checks this program, the state folder, the port, the config, the drivers, and the
tools that MCP servers commonly need, and prints a remedy for every problem. The
config is the one that --config or TINE_CONFIG names, else the config of the
running gateway, else the one that "tine serve" would find here. If a gateway
runs, the command also checks that it answers, admits this program, and has the
same version and config, and checks its servers. The results:

  ok       no problem
  warn     works, but needs attention
  missing  not installed; affects only servers that need it
  broken   "tine serve" will not start or work properly

The exit code is 1 when a check is broken, else 0.`,
		Example: "  tine doctor\n  tine doctor --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.doctor(cmd.Context(), flag)
		},
	}
	cmd.Flags().StringVar(&flag, "config", "", "config file (env TINE_CONFIG)")
	return cmd
}

func (c *cli) doctor(ctx context.Context, configFlag string) error {
	conf, path, checks := c.checkConfigFile(ctx, configFlag)
	listen := config.DefaultListen
	if conf != nil {
		listen = conf.Listen
	}
	servers := enabled(conf)
	// Each of these may run other programs, which take time: run all at once.
	type probe = func() driver.Finding
	machine := []probe{c.checkBuild, c.checkState, func() driver.Finding { return c.checkListen(ctx, listen, conf) }, func() driver.Finding { return checkFiles(conf, openFiles()) },
		func() driver.Finding {
			return checkConfine(confine.Can(confine.Rules{PairsOnly: true, Attributes: true}))
		}}
	var helpers, remotes []probe
	for _, p := range packages.Programs {
		helpers = append(helpers, func() driver.Finding { return p.Check(ctx) })
	}
	var engine atomic.Bool
	for _, host := range docker.Hosts(servers) {
		helpers = append(helpers, func() driver.Finding {
			found, answers := docker.Check(ctx, host, servers)
			if answers {
				engine.Store(true)
			}
			return found
		})
	}
	for _, s := range servers {
		if s.Driver == "remote" {
			remotes = append(remotes, func() driver.Finding { return checkRemote(ctx, s) })
		}
	}
	var (
		wg      sync.WaitGroup
		walls   []sandbox.Step
		gateway []driver.Finding
	)
	start := func(probes []probe) []driver.Finding {
		found := make([]driver.Finding, len(probes))
		for i, probe := range probes {
			wg.Go(func() { found[i] = probe() })
		}
		return found
	}
	onMachine, helping, away := start(machine), start(helpers), start(remotes)
	wg.Go(func() { walls = c.lookAtSandboxes(ctx, conf) })
	wg.Go(func() { gateway = c.checkGateway(ctx, path) })
	wg.Wait()

	around := c.surroundings()
	around.engine, around.sandboxes = engine.Load(), sandbox.Work(walls)
	r := doctorReport{OK: true, Drivers: around.left()}
	if around.bare {
		helping = gather(helping)
	}
	r.Checks = slices.Concat(onMachine, gateway, checks, []driver.Finding{around.check()}, c.checkWorkspace(servers), c.lookAtAgents(ctx, conf), helping, away,
		[]driver.Finding{sandbox.Summary(walls, sandbox.Servers(servers), r.Drivers)})
	for _, ch := range r.Checks {
		r.OK = r.OK && ch.Status != driver.FoundBroken
	}
	if c.flags.json {
		if err := c.printJSON(r); err != nil {
			return err
		}
	} else {
		c.printChecks(r.Checks)
	}
	if !r.OK {
		return exitStatus(exitFailed)
	}
	return nil
}

func (c *cli) printChecks(checks []driver.Finding) {
	width := 0
	for _, ch := range checks {
		width = max(width, len(ch.Name))
	}
	colors := map[string]string{driver.FoundOK: green, driver.FoundWarn: yellow, driver.FoundMissing: yellow, driver.FoundBroken: red}
	indent := strings.Repeat(" ", 9+width+2)
	for _, ch := range checks {
		pad := strings.Repeat(" ", 9-len(ch.Status))
		detail := strings.ReplaceAll(strings.TrimRight(ch.Detail, "\n"), "\n", "\n"+indent)
		fmt.Fprintf(c.stdout, "%s%s%-*s  %s\n", c.paint(colors[ch.Status], ch.Status), pad, width, ch.Name, visible(detail, c.outTerminal))
		if ch.Mend != "" {
			fmt.Fprintf(c.stdout, "%s-> %s\n", indent, visible(ch.Mend, c.outTerminal))
		}
	}
}
