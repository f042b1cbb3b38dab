package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

func newSessionDiffCmd(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "diff ID SNAPSHOT",
		Short: "Show what has changed in a session since a snapshot",
		Long: `Shows what is different in a session from a snapshot: the files of the workspace, the
rows of the built-in sqlite and the graph of the built-in memory. A row that was
changed is one removed and one added. Nothing is started, woken or changed for it,
and it is not in the journal.

SNAPSHOT is the id or the name of a snapshot.

` + sessionIDs,
		Example: `  tine session snapshot 3f9a --name before
  tine session diff 3f9a before
  tine session diff 3f9a before --json | jq '.tables[] | select(.change == "added")'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("%s wants the id of a session and a snapshot; see %s --help", short(cmd), cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: c.completeSession,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.diff(cmd.Context(), args[0], args[1]) },
	}
}

func (c *cli) diff(ctx context.Context, ref, from string) error {
	g, id, err := c.session(ctx, ref)
	if err != nil {
		return err
	}
	var d *api.Diff
	c.waiting(ctx, "comparing "+id, func() { d, err = g.Diff(ctx, id, from) })
	if err != nil {
		return g.explain(mendSnapshot(err))
	}
	if c.flags.json {
		return c.printJSON(d)
	}
	mark := map[string]string{"added": "+", "removed": "-", "changed": "~"}
	for _, f := range d.Files {
		name := f.Place + "/" + f.Path
		if f.Type == api.FileDir {
			name += "/"
		}
		fmt.Fprintf(c.stdout, "%s %s\n", mark[f.Change], name)
	}
	for _, t := range d.Tables {
		text := string(t.Row)
		if t.Schema != "" {
			text = t.Schema
		}
		fmt.Fprintf(c.stdout, "%s %s %s: %s\n", mark[t.Change], t.Server, t.Table, text)
	}
	for _, n := range d.Graph {
		fmt.Fprintf(c.stdout, "%s %s %s: %s\n", mark[n.Change], n.Server, n.Kind, n.Value)
	}
	if len(d.Files)+len(d.Tables)+len(d.Graph) == 0 {
		c.say("No difference.")
	}
	for _, o := range d.Other {
		c.say("Not compared: server %s: %s.", o.Server, o.Reason)
	}
	return nil
}
