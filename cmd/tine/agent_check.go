package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/config"
)

func newAgentCheckCmd(c *cli, flag *string) *cobra.Command {
	return &cobra.Command{
		Use:   "check [NAME|FILE]",
		Short: "Validate blueprints",
		Long: `Reads blueprints as the gateway does for each run, and reports errors with file,
line and column: unknown keys, wrong types, schemas that are none, capabilities,
servers and executors that there are not, settings that the executor does not know
or lacks, programs of hooks that are not there, placeholders that never have a value.
Without an argument it reads all agents and capabilities. Starts nothing.`,
		Example: `  tine agent check
  tine agent check reviewer
  tine agent check ~/.claude/agents/reviewer.md --json`,
		Args: upToOneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := c.agentFiles(*flag)
			if err != nil {
				return err
			}
			return c.checkAgents(cmd.Context(), f, args)
		},
		ValidArgsFunction: c.completeAgent(flag),
	}
}

// agentReport is agent check for programs.
type agentReport struct {
	OK           bool            `json:"ok"`
	Agents       []string        `json:"agents"`
	Capabilities int             `json:"capabilities"`
	Warnings     []string        `json:"warnings,omitempty"`
	Problems     []configProblem `json:"problems,omitempty"`
}

func (c *cli) checkAgents(ctx context.Context, f *agentFiles, args []string) error {
	all, err := f.store.List(ctx)
	if err != nil {
		return err
	}
	r := agentReport{Agents: []string{}}
	chosen := all
	if len(args) > 0 {
		b, err := f.chosen(ctx, args[0])
		if err != nil && !isMistake(err) {
			return f.agentError(err)
		}
		chosen = []blueprint.Listed{{Blueprint: b, Err: err}}
		if b.Name == "" {
			chosen[0].Name = args[0]
		}
	} else {
		n, err := f.folders.CheckCapabilities()
		r.Capabilities = n
		r.add(err)
	}
	known := f.known(c, all)
	for _, a := range chosen {
		r.Agents = append(r.Agents, a.Name)
		r.add(a.Err)
		if a.Err != nil {
			continue
		}
		problems, warnings := a.Check(known)
		if len(problems) > 0 {
			r.add(&config.Error{Problems: problems})
		}
		for _, w := range warnings {
			if !slices.Contains(r.Warnings, w) {
				r.Warnings = append(r.Warnings, w)
			}
		}
	}
	r.OK = len(r.Problems) == 0
	return c.printAgentReport(f, r)
}

// add notes what is wrong, each mistake once: agents share capabilities.
func (r *agentReport) add(err error) {
	for _, p := range problems(err) {
		if !slices.Contains(r.Problems, p) {
			r.Problems = append(r.Problems, p)
		}
	}
}

func (c *cli) printAgentReport(f *agentFiles, r agentReport) error {
	if c.flags.json {
		if err := c.printJSON(r); err != nil || r.OK {
			return err
		}
		return exitStatus(exitFailed)
	}
	c.printWarnings(r.Warnings)
	for _, p := range r.Problems {
		c.say("%s", config.Problem(p))
	}
	switch {
	case !r.OK:
		c.say("tine: %s", count(len(r.Problems), "mistake"))
		return exitStatus(exitFailed)
	case len(r.Agents) == 0:
		c.say("no agents in %s; make one with: tine agent new NAME", f.where())
	default:
		fmt.Fprintf(c.stdout, "ok: %s\n", countAgents(len(r.Agents), r.Capabilities))
	}
	return nil
}

// isMistake reports whether an error is of a blueprint that was found.
func isMistake(err error) bool {
	var e *config.Error
	return errors.As(err, &e)
}

// chosen reads the blueprint that an argument names: a file, or one of the folders.
func (f *agentFiles) chosen(ctx context.Context, arg string) (blueprint.Blueprint, error) {
	if !strings.ContainsAny(arg, `/\.`) {
		return f.store.Get(ctx, arg)
	}
	if info, err := os.Stat(arg); err == nil && info.IsDir() {
		for _, name := range []string{"agent.yaml", "agent.yml", "agent.json", "agent.md"} {
			if _, err := os.Stat(filepath.Join(arg, name)); err == nil {
				return f.folders.File(filepath.Join(arg, name))
			}
		}
		return blueprint.Blueprint{}, fmt.Errorf("%s is a folder without an agent.yaml; name the file", arg)
	}
	return f.folders.File(arg)
}
