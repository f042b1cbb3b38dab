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
		Short: "Make sessions that begin with the state of another one",
		Long: `Forks a session: makes one or more sessions that begin with its state as it is now,
workspace and all, and prints their ids, one a line. What the one does then the
others don't see. All are made or none is. The session itself waits only while
its state is frozen, and goes on; how long that took is said on standard error.

Calls that are under way are waited for, as long as --wait says. What a fork
carries of each server, and why a fork is refused, "tine session show" has. The
children's tokens are in --json, and "tine session token ID..." makes others later.

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
	f.IntVar(&o.Count, "count", 1, "make so many")
	labelFlag(cmd, &o.labels, "label them KEY=VALUE; may be given several times")
	f.StringVar(&o.TTL, "ttl", "", "close them after this long, such as 2h or 7d; 0 for never (default what the config says)")
	f.StringVar(&o.Idle, "idle", "", "close them when unused for this long; 0 for never (default what the config says)")
	f.StringVar(&o.Wait, "wait", "", "wait this long for calls under way and for room (default what the config says)")
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
