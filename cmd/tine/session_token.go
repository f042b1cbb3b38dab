package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

func newSessionTokenCmd(c *cli) *cobra.Command {
	var o mintOptions
	cmd := &cobra.Command{
		Use:   "token ID...",
		Short: "Replace the tokens of sessions, or make further ones, and print them",
		Long: `Creates a new token for a session and prints it on standard output; for several
sessions one per line, after the session's id. A token is valid only for its
session. The old token stops working immediately. The gateway stores only hashes of
tokens, so a lost or leaked token can only be replaced.

With --run, --server, --ttl or --allow the command leaves that token as it is and
creates a further one, for an agent or a run. Its calls have the run in the journal. It
reaches only the servers that are named, and expires. It may call servers, read the
session and list the calls of its run, and nothing else, unless --allow says so.
--list shows the further tokens of a session, and --revoke and --revoke-run make them
useless at once.

` + sessionIDs,
		Example: `  tine session token 3f9a
  tine session token $(tine session open --count 8)
  TINE_TOKEN=$(tine session token 3f9a) tine call memory__read_graph
  tine session token 3f9a --json | jq -r .token
  tine session token 3f9a --run review --server files --ttl 1h
  tine session token 3f9a --list
  tine session token 3f9a --revoke-run review`,
		Args:              oneOrMore("the id of a session"),
		ValidArgsFunction: c.completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch mints, acts, err := o.what(cmd, args); {
			case err != nil:
				return err
			case mints:
				return c.mintTokens(cmd.Context(), args, o.NewSessionToken)
			case acts:
				return c.furtherTokens(cmd.Context(), args[0], o)
			}
			return c.sessionTokens(cmd.Context(), args)
		},
	}
	o.flags(c, cmd)
	return cmd
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
