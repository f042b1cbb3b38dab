package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

func newSessionTokenCmd(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "token ID",
		Short: "Give a session another token and print it, this once",
		Long: `Makes another token for a session and prints it alone on standard output. It is
good for that session alone. The one that the session had is refused at once, so
that this also helps where a token was lost, or seen by the wrong people.

` + sessionIDs,
		Example: `  tine session token 3f9a
  TINE_TOKEN=$(tine session token 3f9a) tine call memory__read_graph
  tine session token 3f9a --json | jq -r .token`,
		Args:              oneArg("the id of a session"),
		ValidArgsFunction: c.completeSession,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.sessionToken(cmd.Context(), args[0]) },
	}
}

func (c *cli) sessionToken(ctx context.Context, ref string) error {
	g, id, err := c.session(ctx, ref)
	if err != nil {
		return err
	}
	s, err := ask(ctx, g, func(ctx context.Context) (*api.OpenedSession, error) { return g.NewSessionToken(ctx, id) })
	if err != nil {
		return mendSession(err)
	}
	if c.flags.json {
		return c.printJSON(s)
	}
	fmt.Fprintln(c.stdout, s.Token)
	c.say("\nThis is the token of %s from now on, and good for that session alone. It is not shown again. The old one is refused.", s.ID)
	return nil
}
