package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
)

// maxBlueprint bounds what is read to be sent. The gateway has a bound of its own.
const maxBlueprint = 4 << 20

func newAgentPutCmd(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "put NAME [FILE|-]",
		Short: "Keep a blueprint at the gateway",
		Long: `Sends a blueprint to the gateway, which keeps it in its state folder as an agent. It
takes the place of the blueprint that the agent has, if that is yours or you are an
operator. Without a FILE, or with -, it is read from standard input. It is JSON or
YAML, with the keys of agent.yaml.

A blueprint of the gateway reads no files. Only an operator may send one with servers
of its own, executor_config, env, hooks or ${env.NAME}. A name that a file has is
refused. What keeps the agent from being started for now, such as a server that the
config does not have, is a warning.`,
		Example: `  tine agent put reviewer reviewer.json
  tine agent put reviewer < agents/reviewer/agent.yaml
  tine agent put reviewer reviewer.yaml --json | jq -r '.problems[]?'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usagef("agent put wants a name for the agent, and a file or -")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			from := "-"
			if len(args) == 2 {
				from = args[1]
			}
			return c.putAgent(cmd.Context(), args[0], from)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return nil, cobra.ShellCompDirectiveDefault // a file
			}
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return c.completeKeptAgents(cmd, args, start)
		},
	}
}

func (c *cli) putAgent(ctx context.Context, name, from string) error {
	var data []byte
	var err error
	if from == "-" {
		data, err = readAll(c.stdin, "standard input", maxBlueprint)
	} else {
		data, err = readFile(from, maxBlueprint)
	}
	if err != nil {
		return fmt.Errorf("read the blueprint: %w", err)
	}
	if !json.Valid(data) {
		// The places of mistakes are those of what was written, and not of the JSON.
		if _, err := blueprint.Parse(name, data); err != nil {
			return err
		}
		if data, err = yaml.YAMLToJSON(data); err != nil {
			return fmt.Errorf("turn the blueprint into JSON: %w", err)
		}
	}
	g, err := c.connect()
	if err != nil {
		return err
	}
	a, err := ask(ctx, g, func(ctx context.Context) (*api.Agent, error) { return g.PutAgent(ctx, name, data) })
	if err != nil {
		return err
	}
	if len(a.Problems) == 0 {
		return c.answer(a, a.Name+": kept", "start it with: "+c.own("tine run "+a.Name))
	}
	if !c.flags.json {
		c.printWarnings(a.Problems)
	}
	return c.answer(a, a.Name+": kept")
}

func newAgentDeleteCmd(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "delete NAME...",
		Aliases: []string{"rm"},
		Short:   "Delete blueprints that the gateway keeps",
		Long: `Deletes blueprints that were sent with "tine agent put" or by the API. Runs of the
agents continue; their sessions can't be resumed any more. An agent that is a file is
refused: remove the file.`,
		Example: `  tine agent delete reviewer
  tine agent delete reviewer tester --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("agent delete wants the names of agents")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			g, err := c.connect()
			if err != nil {
				return err
			}
			deleted, err := c.toEach(cmd.Context(), args, "deleted", func(name string) error {
				return g.explain(g.DeleteAgent(cmd.Context(), name))
			})
			return c.printEach(deleted, "deleted", err)
		},
		ValidArgsFunction: c.completeKeptAgents,
	}
}

// completeKeptAgents completes every argument as an agent that is no file, each once.
func (c *cli) completeKeptAgents(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all, err := quick(cmd, c, func(ctx context.Context, g *gateway) (*api.AgentList, error) { return g.Agents(ctx) })
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	for _, a := range all.Agents {
		if a.Source == "" && strings.HasPrefix(a.Name, start) && !slices.Contains(args, a.Name) {
			found = append(found, cobra.CompletionWithDesc(a.Name, visible(oneLine(a.Description), true)))
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}
