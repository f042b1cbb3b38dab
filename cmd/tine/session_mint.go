package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

// mintFlags are the flags of tine session token that make a further token, and revokeFlags
// those that are about further tokens which there are.
var (
	mintFlags   = []string{"run", "server", "ttl", "allow"}
	revokeFlags = []string{"list", "revoke", "revoke-run"}
)

// mintOptions are the flags of tine session token.
type mintOptions struct {
	api.NewSessionToken
	list      bool
	revoke    []string
	revokeRun string
}

func (o *mintOptions) flags(c *cli, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Run, "run", "", "make a further token for this run, which its calls have in the journal")
	f.StringArrayVar(&o.Servers, "server", nil, "make a further token that reaches this server; repeatable")
	f.StringVar(&o.TTL, "ttl", "", "make a further token that is good for this long, such as 90m; 0s for as long as the session (default 24h)")
	f.StringArrayVar(&o.Allow, "allow", nil, "make a further token that may also do this with the session: "+strings.Join(api.Allows[:], ", ")+"; repeatable")
	f.BoolVar(&o.list, "list", false, "list the session's further tokens")
	f.StringArrayVar(&o.revoke, "revoke", nil, "revoke this further token, by its id; repeatable")
	f.StringVar(&o.revokeRun, "revoke-run", "", "revoke all further tokens of this run")
	c.completeFlag(cmd, "server", c.completeServerFlag)
	c.completeFlag(cmd, "allow", cobra.FixedCompletions(api.Allows[:], cobra.ShellCompDirectiveNoFileComp))
	for _, name := range []string{"run", "ttl", "revoke", "revoke-run"} {
		c.completeFlag(cmd, name, cobra.NoFileCompletions)
	}
}

// what reports whether the flags ask for a further token, and whether they are about those
// that there are.
func (o *mintOptions) what(cmd *cobra.Command, args []string) (mints, acts bool, err error) {
	var mint, act []string
	for _, name := range mintFlags {
		if cmd.Flags().Changed(name) {
			mint = append(mint, "--"+name)
		}
	}
	for _, name := range revokeFlags {
		if cmd.Flags().Changed(name) {
			act = append(act, "--"+name)
		}
	}
	switch {
	case len(act) > 1 || len(act) > 0 && len(mint) > 0:
		return false, false, usagef("%s can't be given together with %s", act[0], strings.Join(append(act[1:], mint...), ", "))
	case len(act) > 0 && len(args) > 1:
		return false, false, usagef("%s wants one session, got %d", act[0], len(args))
	case cmd.Flags().Changed("revoke-run") && o.revokeRun == "":
		return false, false, usagef("--revoke-run wants the name of a run")
	}
	return len(mint) > 0, len(act) > 0, nil
}

// mintTokens makes a further token for each session.
func (c *cli) mintTokens(ctx context.Context, refs []string, in api.NewSessionToken) error {
	mint := func(g *gateway, ctx context.Context, id string) (*api.MintedToken, error) {
		return g.MintSessionToken(ctx, id, in)
	}
	made, err := newTokens(ctx, c, refs, "tokens", mint, func(t api.MintedToken) (string, string) { return t.Session, t.Token })
	if len(made) == 0 || c.flags.json {
		return err
	}
	one, until := made[0], "the session closes"
	if !one.Expires.IsZero() {
		until = one.Expires.In(c.now().Location()).Format("2006-01-02 15:04")
	}
	if len(refs) == 1 {
		c.say("\nThis is token %s of %s, good until %s. It is not shown again. Revoke it with: tine session token %s --revoke %s", one.ID, one.Session, until, one.Session, one.ID)
	} else {
		c.say("\nThese are further tokens, good until %s. They are not shown again.", until)
	}
	return err
}

// furtherTokens lists or revokes the further tokens of a session.
func (c *cli) furtherTokens(ctx context.Context, ref string, o mintOptions) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	id, err := findSession(ctx, g, ref)
	if err != nil {
		return err
	}
	switch {
	case o.list:
		list, err := askFor(ctx, g, g.SessionTokens, id)
		if err != nil {
			return mendSession(err)
		}
		return c.list(list, c.sessionTokenTable(list.Tokens), fmt.Sprintf("session %s has no further tokens; `tine session token %s --run NAME` makes one", id, id))
	case o.revokeRun != "":
		n, err := ask(ctx, g, func(ctx context.Context) (int, error) { return g.RevokeRunTokens(ctx, id, o.revokeRun) })
		if err != nil {
			return mendSession(err)
		}
		if c.flags.json {
			return c.printJSON(api.RevokedTokens{Revoked: n})
		}
		c.say("revoked tokens of run %s: %d", o.revokeRun, n)
		return nil
	}
	_, err = c.toEach(ctx, o.revoke, "tokens", func(token string) error {
		_, err := ask(ctx, g, func(ctx context.Context) (struct{}, error) { return struct{}{}, g.RevokeSessionToken(ctx, id, token) })
		var ae *api.Error
		if errors.As(err, &ae) && ae.Status == http.StatusNotFound {
			return err // it says what to do
		}
		return mendSession(err)
	})
	return err
}

func (c *cli) sessionTokenTable(all []api.SessionToken) *table {
	return listing(all, columns("ID", "RUN", "SERVERS", "ALLOWS", "CREATED", "EXPIRES"), func(t api.SessionToken) []cell {
		row := cells(t.ID, t.Run, "all", strings.Join(t.Allow, " "), c.age(t.Created)+" ago", "with the session")
		if t.Servers != nil {
			row[2].text = cmp.Or(strings.Join(t.Servers, " "), "none")
		}
		if !t.Expires.IsZero() {
			row[5].text = t.Expires.In(c.now().Location()).Format("2006-01-02 15:04")
		}
		return row
	})
}
