package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

func newSessionRewindCmd(c *cli) *cobra.Command {
	var (
		yes bool
		in  api.RewindRequest
	)
	cmd := &cobra.Command{
		Use:   "rewind ID [SNAPSHOT]",
		Short: "Rewind a session to one of its snapshots",
		Long: `Rewinds a session to one of its snapshots, by name or id; by default to the newest.
The state of its servers and its workspace are restored, later changes are
discarded, and its id, URL and token stay the same. Snapshots are made by "tine
session snapshot", or automatically in a session opened with --autosnapshot.

On a terminal Tine shows what it will do and asks for confirmation; --yes skips the
question, and is required without a terminal.

` + sessionIDs,
		Example: `  tine session rewind 3f9a
  tine session rewind 3f9a before-the-migration
  tine session rewind 3f9a snp_0c5d21f3a9be --yes`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 2 {
				return usagef("%s wants the id of a session, and a snapshot if it is not the newest; see %s --help", short(cmd), cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: c.completeRewind,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if in.Wait, err = spanFlag("wait", in.Wait); err != nil {
				return err
			}
			if len(args) == 2 {
				in.Snapshot = args[1]
			}
			return c.rewind(cmd.Context(), args[0], in, yes)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	cmd.Flags().StringVar(&in.Wait, "wait", "", "wait at most this long for calls in progress (default from the config)")
	return cmd
}

func (c *cli) rewind(ctx context.Context, ref string, in api.RewindRequest, yes bool) error {
	if !yes && !c.inTerminal {
		return usagef("rewind undoes all changes since the snapshot, and standard input is no terminal to ask on; add --yes")
	}
	g, id, err := c.session(ctx, ref)
	if err != nil {
		return err
	}
	snap, err := rewindTarget(ctx, g, id, in.Snapshot)
	if err != nil {
		return err
	}
	in.Snapshot = snap.ID // the one in the question, even if another is made meanwhile
	what := snapshotText(snap) + ", made " + c.age(snap.Created) + " ago"
	if !yes {
		ok, err := c.confirm(ctx, fmt.Sprintf("%s goes back to %s%s.\nRewind it?", id, what, undone(ctx, g, id, snap)))
		if err != nil {
			return err
		}
		if !ok {
			c.say("nothing was rewound")
			return exitStatus(exitFailed)
		}
	}
	var s *api.Session
	c.waiting(ctx, "rewinding "+id, func() { s, err = g.Rewind(ctx, id, in) })
	if err != nil {
		return g.explain(mendSession(err))
	}
	return c.answer(s, id+": rewound to "+what)
}

// rewindTarget finds the snapshot to go back to.
func rewindTarget(ctx context.Context, g *gateway, session, ref string) (*api.Snapshot, error) {
	if ref != "" {
		return findSnapshot(ctx, g, ref)
	}
	newest, err := snapshotsOf(ctx, g, session, 1)
	if err != nil {
		return nil, mendSession(err)
	}
	if len(newest) == 0 {
		return nil, usagef("session %s has no snapshot to rewind to; make one with `tine session snapshot %s`, or open sessions with --autosnapshot", session, session)
	}
	return &newest[0], nil
}

// undone says how much would be undone, if the journal knows.
func undone(ctx context.Context, g *gateway, session string, snap *api.Snapshot) string {
	list, err := ask(ctx, g, func(ctx context.Context) (*api.CallList, error) {
		return g.SessionCalls(ctx, session, client.CallQuery{Limit: callsPage})
	})
	if err != nil || snap.Session != session {
		return "; all later changes are lost"
	}
	n := 0
	for _, call := range list.Calls {
		if call.ID > snap.Call && call.Method == "tools/call" {
			n++
		}
	}
	switch {
	case n == callsPage:
		return fmt.Sprintf("; all later changes, by more than %d calls, are lost", n)
	case n == 0:
		return "; no calls were made since"
	}
	return fmt.Sprintf("; all later changes, by %s, are lost", count(n, "call"))
}

// snapshotText names a snapshot.
func snapshotText(s *api.Snapshot) string {
	return strings.TrimSuffix(fmt.Sprintf("%s (%s)", s.ID, s.Name), " ()")
}
