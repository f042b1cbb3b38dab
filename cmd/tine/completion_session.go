package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// completed is how many sessions or snapshots are offered.
const completed = 200

const newestFirst = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder

// completeSession completes the first argument as the id of an open session.
func (c *cli) completeSession(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.completeSessions(cmd, args, start)
}

// completeSessions completes every argument so, each id once.
func (c *cli) completeSessions(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all, err := quick(cmd, c, func(ctx context.Context, g *gateway) ([]api.Session, error) {
		return upTo(completed, g.AllSessions(ctx, client.SessionQuery{Limit: completed}))
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	for _, s := range all {
		id := s.ID
		if !strings.HasPrefix(id, start) {
			id = strings.TrimPrefix(id, sessionPrefix) // it may be left out
		}
		if s.Name != "" && start != "" && strings.HasPrefix(s.Name, start) {
			id = s.Name
		}
		if !strings.HasPrefix(id, start) || slices.Contains(args, id) {
			continue
		}
		found = append(found, cobra.CompletionWithDesc(id, visible(oneLine(labelText(s.Labels)+" "+c.age(s.Created)+" old"), true)))
	}
	return found, newestFirst
}

func (c *cli) completeSessionFlag(cmd *cobra.Command, _ []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return c.completeSessions(cmd, nil, start)
}

// completeSnapshots completes every argument as a snapshot, each once.
func (c *cli) completeSnapshots(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return c.snapshotCompletions(cmd, args, start), newestFirst
}

func (c *cli) completeSnapshotFlag(cmd *cobra.Command, _ []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return c.completeSnapshots(cmd, nil, start)
}

// snapshotCompletions are snapshots by their names, or by their ids where they
// have none or an id was begun.
func (c *cli) snapshotCompletions(cmd *cobra.Command, args []string, start string) []cobra.Completion {
	all, err := quick(cmd, c, func(ctx context.Context, g *gateway) ([]api.Snapshot, error) {
		return snapshots(ctx, g, client.SnapshotQuery{}, completed)
	})
	if err != nil {
		return nil
	}
	return c.offer(all, args, start)
}

func (c *cli) offer(all []api.Snapshot, args []string, start string) []cobra.Completion {
	var found []cobra.Completion
	for _, s := range all {
		name := s.Name
		if name == "" || strings.HasPrefix(start, snapshotPrefix) {
			name = s.ID
		}
		if strings.HasPrefix(name, start) && !slices.Contains(args, name) {
			found = append(found, cobra.CompletionWithDesc(name, visible(oneLine(s.Session+" "+c.age(s.Created)+" old"), true)))
		}
	}
	return found
}

// completeRewind completes a session, then its snapshots.
func (c *cli) completeRewind(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return c.completeSession(cmd, args, start)
	}
	all, err := quick(cmd, c, func(ctx context.Context, g *gateway) ([]api.Snapshot, error) {
		id, err := findSession(ctx, g, args[0])
		if err != nil {
			return nil, err
		}
		return snapshotsOf(ctx, g, id, completed)
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.offer(all, nil, start), newestFirst
}

// completeExport completes a session or a snapshot.
func (c *cli) completeExport(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	sessions, directive := c.completeSession(cmd, args, start)
	if len(args) > 0 {
		return sessions, directive
	}
	return append(c.snapshotCompletions(cmd, args, start), sessions...), newestFirst
}
