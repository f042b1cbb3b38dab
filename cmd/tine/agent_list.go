package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/config"
)

func newAgentListCmd(c *cli, flag *string) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the agents",
		Long: `Lists the agents of the folders, and those that a running gateway keeps, with what they
are for. One that can't be started is in the list with the number of its mistakes;
"tine agent check" names them.`,
		Example: `  tine agent list
  tine agent list --json | jq -r '.agents[] | select(.problems) | .name'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := c.agentFiles(*flag)
			if err != nil {
				return err
			}
			all, err := f.store.List(cmd.Context())
			if err != nil {
				return err
			}
			known := f.known(c, all)
			list := api.AgentList{Agents: []api.Agent{}}
			t := &table{columns: []column{{name: "NAME", rule: whole}, {name: "FROM"}, {name: "EXECUTOR"}, {name: "STATE", rule: filled}, {name: "DESCRIPTION"}}}
			for _, l := range all {
				a := l.API()
				e, _ := f.conf.Agents.ExecutorNamed(l.Executor)
				a.Procedural = e.Type == config.ExecutorProcedural
				err := l.Err
				if err == nil {
					if found, _ := l.Check(known); len(found) > 0 {
						err = &config.Error{Problems: found}
					}
				}
				for _, p := range problems(err) {
					a.Problems = append(a.Problems, config.Problem(p).String())
				}
				list.Agents = append(list.Agents, a)
			}
			kept, _, err := withGateway(cmd.Context(), c, func(ctx context.Context, g *gateway) (*api.AgentList, error) { return g.Agents(ctx) })
			if err != nil {
				fmt.Fprintf(c.stderr, "warning: agents that the gateway keeps are not in the list: %v\n", err)
			} else if kept != nil {
				for _, a := range kept.Agents {
					if a.Source == "" {
						list.Agents = append(list.Agents, a)
					}
				}
			}
			slices.SortStableFunc(list.Agents, func(a, b api.Agent) int { return cmp.Compare(a.Name, b.Name) })
			for _, a := range list.Agents {
				state := cell{}
				if n := len(a.Problems); n > 0 {
					state = cell{count(n, "mistake"), red}
				}
				from := "gateway"
				if a.Source != "" {
					from = "file"
				}
				t.add(plain(a.Name), plain(from), plain(a.Executor), state, plain(firstLine(a.Description)))
			}
			return c.list(list, t, fmt.Sprintf("no agents in %s; make one with: tine agent new NAME", f.where()))
		},
	}
}

func newAgentShowCmd(c *cli, flag *string) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Print an agent's blueprint as a run gets it",
		Long: `Prints the blueprint with its capabilities mixed in and every default filled in.
Placeholders stay as they are written, since their values are those of a run.
Secrets are masked.`,
		Example: `  tine agent show reviewer
  tine agent show reviewer --json | jq -r .system_prompt`,
		Args: oneArg("the name of an agent"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := c.agentFiles(*flag)
			if err != nil {
				return err
			}
			b, err := f.chosen(cmd.Context(), args[0])
			if errors.Is(err, blueprint.ErrUnknown) {
				document, asked, keptErr := withGateway(cmd.Context(), c, func(ctx context.Context, g *gateway) (json.RawMessage, error) { return g.Blueprint(ctx, args[0]) })
				if asked && keptErr == nil {
					b, err = blueprint.Parse(args[0], document)
				}
			}
			if err != nil {
				return f.agentError(err)
			}
			shown := b.Show()
			if c.flags.json {
				return c.printJSON(shown)
			}
			text, err := yaml.MarshalWithOptions(shown, yaml.UseJSONMarshaler(), yaml.UseLiteralStyleIfMultiline(true))
			if err != nil {
				return fmt.Errorf("write the blueprint as YAML: %w", err)
			}
			fmt.Fprintf(c.stdout, "# %s\n%s", visible(shorter(cmp.Or(b.Source, "kept by the gateway")), c.outTerminal), visibleLines(string(text), c.outTerminal))
			return nil
		},
		ValidArgsFunction: c.completeAgent(flag),
	}
}

// visibleLines is visible for each line of a text.
func visibleLines(text string, terminal bool) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(visible(strings.TrimSuffix(line, "\n"), terminal) + "\n")
	}
	return b.String()
}
