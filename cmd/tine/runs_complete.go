package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// completeServedAgents completes the first argument as an agent of the gateway.
func (c *cli) completeServedAgents(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, err := quick(cmd, c, func(ctx context.Context, g *gateway) (*api.AgentList, error) { return g.Agents(ctx) })
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	for _, a := range all.Agents {
		if strings.HasPrefix(a.Name, start) && len(a.Problems) == 0 {
			found = append(found, cobra.CompletionWithDesc(a.Name, visible(oneLine(a.Description), true)))
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeRun completes the first argument as a run.
func (c *cli) completeRun(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.completeRuns(cmd, args, start)
}

// completeRuns completes every argument so, each id once.
func (c *cli) completeRuns(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all, err := quick(cmd, c, func(ctx context.Context, g *gateway) ([]api.Run, error) {
		return upTo(completed, g.AllRuns(ctx, client.RunQuery{Limit: completed}))
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	for _, r := range all {
		id := r.ID
		if !strings.HasPrefix(id, start) {
			id = strings.TrimPrefix(id, runPrefix) // it may be left out
		}
		if strings.HasPrefix(id, start) && !slices.Contains(args, id) {
			found = append(found, cobra.CompletionWithDesc(id, visible(oneLine(r.Agent+" "+r.State+" "+c.age(r.Created)+" old"), true)))
		}
	}
	return found, newestFirst
}
