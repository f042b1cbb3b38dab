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
	"github.com/tine-mcp/tine/internal/driver/sandbox"
)

// What a check may find.
const (
	checkOK      = "ok"
	checkWarn    = "warn"    // works, but look at it
	checkMissing = "missing" // not there; some servers may want it
	checkBroken  = "broken"  // tine serve needs it
)

// check is what was found of one thing.
type check struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	Mend   string `json:"mend,omitempty"` // what to do about it
}

// doctorReport is tine doctor for programs.
type doctorReport struct {
	OK      bool     `json:"ok"`      // nothing that serve needs is broken
	Drivers []string `json:"drivers"` // that work here
	Checks  []check  `json:"checks"`
}

func newDoctorCmd(c *cli) *cobra.Command {
	var flag string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine, the config and the running gateway",
		Long: `Looks at this program, the state folder, the port, the config, at which drivers
work here and at what MCP servers are commonly run with, and says what to do
about what is not right. The config is the one that --config or TINE_CONFIG names,
else that of the running gateway, else the one that "tine serve" would find here.
Of the gateway that runs it says whether it answers, lets this program in, is of
the same version, has the same config, and how its servers are:

  ok       fine
  warn     works, but look at it
  missing  not there; only servers that want it are touched
  broken   "tine serve" will not start or work properly

The exit code is 1 when something is broken, else 0.`,
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
	// Each of these may ask other programs, which take their time: ask all at
	// once.
	machine := []func() check{c.checkBuild, c.checkState, func() check { return c.checkListen(ctx, listen, conf) }, func() check { return checkFiles(conf, openFiles()) }}
	probes := slices.Clone(machine)
	for _, p := range programs {
		probes = append(probes, func() check { return p.check(ctx) })
	}
	var engine atomic.Bool
	for _, host := range dockerHosts(conf) {
		probes = append(probes, func() check {
			ch, answers := c.checkDocker(ctx, host, conf)
			if answers {
				engine.Store(true)
			}
			return ch
		})
	}
	helping := len(probes)
	var walls []sandbox.Finding
	probes = append(probes, c.remoteProbes(ctx, conf)...)
	found := make([]check, len(probes))
	var wg sync.WaitGroup
	for i, probe := range probes {
		wg.Go(func() { found[i] = probe() })
	}
	wg.Go(func() { walls = c.lookAtSandboxes(ctx, conf) })
	var gateway []check
	wg.Go(func() { gateway = c.checkGateway(ctx, path) })
	wg.Wait()

	around := c.surroundings()
	around.engine, around.sandboxes = engine.Load(), sandboxesWork(walls)
	r := doctorReport{OK: true, Drivers: around.left()}
	helpers := found[len(machine):helping]
	if around.bare {
		helpers = gather(helpers)
	}
	r.Checks = slices.Concat(found[:len(machine)], gateway, checks, []check{around.check()}, c.workspaceChecks(conf), helpers, found[helping:], []check{sandboxCheck(walls, sandboxServers(conf), r.Drivers, noUserNamespaces)})
	for _, ch := range r.Checks {
		r.OK = r.OK && ch.Status != checkBroken
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

func (c *cli) printChecks(checks []check) {
	width := 0
	for _, ch := range checks {
		width = max(width, len(ch.Name))
	}
	colors := map[string]string{checkOK: green, checkWarn: yellow, checkMissing: yellow, checkBroken: red}
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
