package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

func newSessionSnapshotCmd(c *cli) *cobra.Command {
	var (
		in     api.SnapshotRequest
		labels []string
	)
	cmd := &cobra.Command{
		Use:   "snapshot ID",
		Short: "Make a snapshot of a session",
		Long: `Makes a snapshot of the current state of a session, including the workspace, and
prints the id of the snapshot. The session keeps running. It can be rewound to the
snapshot, and new sessions can be opened from it. A snapshot with a name is a
template.

` + sessionIDs,
		Example: `  tine session snapshot 3f9a
  tine session snapshot 3f9a --name base
  tine session open --from base`,
		Args:              oneArg("the id of a session"),
		ValidArgsFunction: c.completeSession,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if in.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			if in.Wait, err = spanFlag("wait", in.Wait); err != nil {
				return err
			}
			return c.makeSnapshot(cmd.Context(), args[0], in)
		},
	}
	cmd.Flags().StringVar(&in.Name, "name", "", "name of the snapshot, for \"tine session open --from\"")
	labelFlag(cmd, &labels, "label of the snapshot, KEY=VALUE; repeatable")
	cmd.Flags().StringVar(&in.Wait, "wait", "", "wait at most this long for calls in progress (default from the config)")
	c.completeFlag(cmd, "name", cobra.NoFileCompletions)
	return cmd
}

func (c *cli) makeSnapshot(ctx context.Context, ref string, in api.SnapshotRequest) error {
	g, id, err := c.session(ctx, ref)
	if err != nil {
		return err
	}
	var snap *api.Snapshot
	c.waiting(ctx, "freezing "+id, func() {
		snap, err = once(ctx, c, func(key client.CreateOption) (*api.Snapshot, error) { return g.MakeSnapshot(ctx, id, in, key) })
	})
	if err != nil {
		return g.explain(mendSession(err))
	}
	return c.printMade(snap)
}

// printMade prints a new snapshot, and commands that use it.
func (c *cli) printMade(snap *api.Snapshot) error {
	from := cmp.Or(snap.Name, snap.ID)
	advice := []string{"\n" + sizeText(snap.Size) + ". Next:\n", "  " + c.own("tine session open --from "+from)}
	if snap.Session != "" {
		advice = append(advice, "  "+c.own("tine session rewind "+snap.Session+" "+from))
	}
	return c.answer(snap, snap.ID, advice...)
}

func newSessionSnapshotsCmd(c *cli) *cobra.Command {
	var (
		q       client.SnapshotQuery
		labels  []string
		session string
	)
	list := func(cmd *cobra.Command, args []string) (err error) {
		if len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		if q.Limit < 1 {
			return usagef("--limit wants a number above 0, got %d", q.Limit)
		}
		if q.Labels, err = parseLabels(labels); err != nil {
			return err
		}
		return c.listSnapshots(cmd.Context(), q, session)
	}
	flags := func(cmd *cobra.Command) {
		f := cmd.Flags()
		labelFlag(cmd, &labels, "only snapshots with this label, KEY=VALUE; repeatable, and all must match")
		f.StringVar(&q.Owner, "owner", "", "only snapshots of this principal")
		f.StringVar(&session, "session", "", "only snapshots of this session, including automatic ones")
		f.BoolVar(&q.Auto, "auto", false, "also list automatic snapshots")
		f.IntVar(&q.Limit, "limit", listedSessions, "list at most this many")
		c.completeFlag(cmd, "session", c.completeSessionFlag)
	}
	const long = `Lists snapshots, the newest first, with their name, session, age and size.
Automatic snapshots are listed with --auto or --session. Commands accept a snapshot
by its name, its id, or a prefix of its id.`
	cmd := &cobra.Command{
		Use:   "snapshots",
		Short: "List or delete snapshots",
		Long:  long,
		Example: `  tine session snapshots
  tine session snapshots --session 3f9a
  tine session snapshots delete base`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              list,
	}
	sub := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List snapshots", Long: long,
		Example: `  tine session snapshots list
  tine session snapshots list --json | jq '[.snapshots[].size] | add'`,
		Args: noArgs, ValidArgsFunction: cobra.NoFileCompletions, RunE: list,
	}
	flags(cmd)
	flags(sub)
	cmd.AddCommand(sub, newSnapshotsDeleteCmd(c))
	return cmd
}

func newSnapshotsDeleteCmd(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "delete NAME...",
		Aliases: []string{"rm"},
		Short:   "Delete snapshots",
		Long: `Deletes snapshots by name, id or id prefix. Sessions that were opened from them are
not affected.`,
		Example: `  tine session snapshots delete base
  tine session snapshots delete snp_0c5d21f3a9be snp_77`,
		Args:              oneOrMore("the name of a snapshot"),
		ValidArgsFunction: c.completeSnapshots,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.deleteSnapshots(cmd.Context(), args) },
	}
}

func (c *cli) listSnapshots(ctx context.Context, q client.SnapshotQuery, session string) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	var out api.SnapshotList
	if session != "" {
		if session, err = findSession(ctx, g, session); err != nil {
			return err
		}
		out.Snapshots, err = snapshotsOf(ctx, g, session, q.Limit+1) // one more shows whether there are more
	} else {
		out.Snapshots, err = snapshots(ctx, g, q, q.Limit+1)
	}
	if err != nil {
		return mendSession(err)
	}
	more := len(out.Snapshots) > q.Limit
	if more {
		out.Snapshots = out.Snapshots[:q.Limit]
	}
	none := fmt.Sprintf("no matching snapshots; `%s` makes one", c.own("tine session snapshot ID"))
	if err := c.list(out, c.snapshotTable(out.Snapshots, true), none); err != nil {
		return err
	}
	if more && !c.flags.json {
		c.say("there are more; raise --limit")
	}
	return nil
}

// snapshotTable lists snapshots, with their sessions unless all are of the requested
// one.
func (c *cli) snapshotTable(all []api.Snapshot, sessions bool) *table {
	columns := []column{
		{"SNAPSHOT", whole}, {"NAME", 0}, {"OWNER", varied | when(sessions)}, {"SESSION", when(sessions)},
		{"LABELS", 0}, {"AGE", 0}, {"SIZE", 0}, {"AFTER", 0}, {"DAMAGED", filled},
	}
	return listing(all, columns, func(s api.Snapshot) []cell {
		row := cells(s.ID, s.Name, s.Owner, s.Session, labelText(s.Labels), c.age(s.Created), sizeText(s.Size), s.Call, damageText(s.Damaged))
		if s.Auto {
			row[1] = cell{"(auto)", dim}
		}
		return row
	})
}

func (c *cli) deleteSnapshots(ctx context.Context, refs []string) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	var ids []string
	for _, ref := range refs { // all before the first is deleted
		snap, err := findSnapshot(ctx, g, ref)
		if err != nil {
			return err
		}
		if !slices.Contains(ids, snap.ID) {
			ids = append(ids, snap.ID)
		}
	}
	deleted, err := c.toEach(ctx, ids, "deleted", func(id string) error {
		return g.explain(mendSnapshot(g.DeleteSnapshot(ctx, id)))
	})
	return c.printEach(deleted, "deleted", err)
}
