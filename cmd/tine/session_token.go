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
	replace := func(g *gateway, ctx context.Context, id string) (*api.OpenedSession, error) {
		return g.NewSessionToken(ctx, id)
	}
	done, err := newTokens(ctx, c, refs, "sessions", replace, func(s api.OpenedSession) (string, string) { return s.ID, s.Token })
	switch {
	case len(done) == 0 || c.flags.json:
	case len(refs) == 1:
		c.say("\nThis is the token of %s from now on, and good for that session alone. It is not shown again. The old one is refused.", done[0].ID)
	default:
		c.say("\nThese are the tokens from now on, each good for its session alone. They are not shown again. The old ones are refused.")
	}
	return err
}

// newTokens makes a token for each session and prints them. What was made is returned
// also where some could not be.
func newTokens[T any](ctx context.Context, c *cli, refs []string, key string, create func(*gateway, context.Context, string) (*T, error), parts func(T) (session, token string)) (made []T, err error) {
	g, err := c.connect()
	if err != nil {
		return nil, err
	}
	ids, err := findSessions(ctx, g, refs)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	tokens := map[string]T{}
	done, err := c.toEach(ctx, ids, "tokens", func(id string) error {
		t, err := ask(ctx, g, func(ctx context.Context) (*T, error) { return create(g, ctx, id) })
		if err != nil {
			return mendSession(err)
		}
		mu.Lock()
		defer mu.Unlock()
		tokens[id] = *t
		return nil
	})
	made = []T{} // an empty list in JSON
	for _, id := range done {
		made = append(made, tokens[id])
	}
	switch {
	case len(ids) > 1 && c.flags.json:
		return made, c.printAll(key, made, err)
	case len(made) > 0 && c.flags.json:
		return made, c.printJSON(made[0])
	}
	for _, t := range made {
		session, token := parts(t)
		if len(ids) > 1 {
			token = session + "\t" + token
		}
		fmt.Fprintln(c.stdout, token)
	}
	return made, err
}
