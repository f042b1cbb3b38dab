package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// forkOptions are the flags of tine session fork.
type forkOptions struct {
	api.ForkRequest
	labels []string
}

func newSessionForkCmd(c *cli) *cobra.Command {
	var o forkOptions
	cmd := &cobra.Command{
		Use:   "fork ID",
		Short: "Fork a session into new sessions with its state",
		Long: `Forks a session: creates one or more sessions that start with its current state,
including the workspace, and prints their ids, one per line. Later changes in one
of the sessions are not visible in the others. Either all forks are created or
none. The parent session is paused only while its state is frozen; the command
prints the pause on standard error.

The fork waits for calls in progress, at most as long as --wait. "tine session show"
shows what a fork carries of each server, and why a fork is refused. --json prints
the tokens of the forks; "tine session token ID..." creates new ones later.

` + sessionIDs,
		Example: `  tine session fork ses_3f9a1c0de7b2
  tine session fork 3f9a --count 3 --label try=a
  for id in $(tine session fork 3f9a --count 8); do rollout "$id" & done
  tine session fork 3f9a --json | jq -r '.sessions[] | [.url, .token] | @tsv'`,
		Args:              oneArg("the id of a session"),
		ValidArgsFunction: c.completeSession,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Count < 1 {
				return usagef("--count wants a number above 0, got %d", o.Count)
			}
			if o.Labels, err = parseLabels(o.labels); err != nil {
				return err
			}
			if err := spanFlags(map[string]*string{"ttl": &o.TTL, "idle": &o.Idle, "wait": &o.Wait}); err != nil {
				return err
			}
			return c.fork(cmd.Context(), args[0], o.ForkRequest)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Count, "count", 1, "number of forks")
	labelFlag(cmd, &o.labels, "label of the forks, KEY=VALUE; repeatable")
	f.StringVar(&o.TTL, "ttl", "", "close the forks after this long, such as 2h or 7d; 0 for never (default from the config)")
	f.StringVar(&o.Idle, "idle", "", "close the forks when unused for this long; 0 for never (default from the config)")
	f.StringVar(&o.Wait, "wait", "", "wait at most this long for calls in progress and for room (default from the config)")
	return cmd
}

func (c *cli) fork(ctx context.Context, ref string, in api.ForkRequest) error {
	g, id, err := c.session(ctx, ref)
	if err != nil {
		return err
	}
	var made *api.Forks
	c.waiting(ctx, "forking "+id, func() {
		made, err = once(ctx, c, func(key client.CreateOption) (*api.Forks, error) { return g.Fork(ctx, id, in, key) })
	})
	if err != nil {
		return g.explain(mendSession(err))
	}
	if c.flags.json {
		return c.printJSON(made)
	}
	for _, s := range made.Sessions {
		fmt.Fprintln(c.stdout, s.ID)
	}
	c.say("\n%s of %s; its calls waited %s.", count(len(made.Sessions), "fork"), made.Parent, shortMillis(made.Paused))
	if len(made.Sessions) > 0 {
		c.say("\nNext:\n\n  %s\n  %s", c.own("tine tools --session "+made.Sessions[0].ID), c.own("tine session tree "+made.Parent))
	}
	return nil
}
