package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

func newSessionTokenCmd(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "token ID...",
		Short: "Replace the tokens of sessions and print the new ones",
		Long: `Creates a new token for a session and prints it on standard output; for several
sessions one per line, after the session's id. A token is valid only for its
session. The old token stops working immediately. The gateway stores only hashes of
tokens, so a lost or leaked token can only be replaced.

` + sessionIDs,
		Example: `  tine session token 3f9a
  tine session token $(tine session open --count 8)
  TINE_TOKEN=$(tine session token 3f9a) tine call memory__read_graph
  tine session token 3f9a --json | jq -r .token`,
		Args:              oneOrMore("the id of a session"),
		ValidArgsFunction: c.completeSessions,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.sessionTokens(cmd.Context(), args) },
	}
}

func (c *cli) sessionTokens(ctx context.Context, refs []string) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	ids, err := findSessions(ctx, g, refs)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	tokens := map[string]api.OpenedSession{}
	done, err := c.toEach(ctx, ids, "tokens", func(id string) error {
		s, err := ask(ctx, g, func(ctx context.Context) (*api.OpenedSession, error) { return g.NewSessionToken(ctx, id) })
		if err != nil {
			return mendSession(err)
		}
		mu.Lock()
		defer mu.Unlock()
		tokens[id] = *s
		return nil
	})
	switch {
	case len(ids) > 1 && c.flags.json:
		all := []api.OpenedSession{}
		for _, id := range done {
			all = append(all, tokens[id])
		}
		return c.printAll("sessions", all, err)
	case len(done) == 0:
		return err
	case len(ids) == 1 && c.flags.json:
		return c.printJSON(tokens[done[0]])
	case len(ids) == 1:
		fmt.Fprintln(c.stdout, tokens[done[0]].Token)
	default:
		for _, id := range done {
			fmt.Fprintf(c.stdout, "%s\t%s\n", id, tokens[id].Token)
		}
	}
	if len(ids) == 1 {
		c.say("\nThis is the token of %s from now on, and good for that session alone. It is not shown again. The old one is refused.", done[0])
	} else {
		c.say("\nThese are the tokens from now on, each good for its session alone. They are not shown again. The old ones are refused.")
	}
	return err
}
