package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
)

// roles, from the one with the fewest permissions.
var roles = [...]string{api.RoleUser, api.RoleViewer, api.RoleOperator}

const tokenWhere = `If a gateway runs on this state folder, or --url names one, the command calls that
gateway, and changes take effect immediately. Otherwise the command reads and writes
the state folder itself, because a gateway on a public address does not start
without a token.`

func newTokenCmd(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create, list, rotate and revoke bearer tokens",
		Long: `Creates, lists, rotates and revokes bearer tokens. A token identifies a principal,
the caller, and gives it a role. A user calls tools and sees its own calls. A
viewer also sees all servers, the metrics, and the calls of all principals without
their contents. An operator also reads the contents, and changes servers, tokens
and credentials. auth.rules in the config grants servers and tools to principals.

While there are no tokens, and no sign-on in the config, the gateway admits only
callers on this machine, and all of them. From the first token on every caller
needs a token.

` + tokenWhere,
		Example: `  tine token new alice
  tine token new ci --role viewer --expires 90d
  tine token list
  tine token rotate ci
  tine token revoke ci`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(newTokenNewCmd(c), newTokenListCmd(c), newTokenRotateCmd(c), newTokenConfirmCmd(c), newTokenRevokeCmd(c))
	return cmd
}

func newTokenNewCmd(c *cli) *cobra.Command {
	var role, expires string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Create a token and print it",
		Long: `Creates a token for the principal NAME and prints it on standard output. Only its
hash is stored, so it can't be shown again. Standard error shows how to use it and
how to write it into tine.yaml.

` + tokenWhere,
		Example: `  tine token new alice
  tine token new ci --role viewer --expires 90d
  tine token new board --role viewer > board.token
  tine token new ci --json | jq -r .hash`,
		Args: oneArg("a name for who will use the token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t := api.NewToken{Name: args[0], Role: role}
			if !slices.Contains(roles[:], role) {
				return usagef("--role %q is none of %s%s", role, strings.Join(roles[:], ", "), didYouMean(role, roles[:]))
			}
			if expires != "" {
				var err error
				if t.Expires, err = c.expires(expires); err != nil {
					return err
				}
			}
			return c.newToken(cmd.Context(), t)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVar(&role, "role", api.RoleUser, "role of the principal: "+strings.Join(roles[:], ", "))
	cmd.Flags().StringVar(&expires, "expires", "", "expiry: 12h, 90d, or a time like 2027-01-31T00:00:00Z (default never)")
	c.completeFlag(cmd, "role", cobra.FixedCompletions(roles[:], cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func newTokenListCmd(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the tokens by principal, without the tokens themselves",
		Long:    "Lists the tokens with their principals and roles, without the tokens themselves.\n\n" + tokenWhere,
		Example: `  tine token list
  tine token list --json | jq -r '.tokens[] | select(.role == "operator") | .name'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.listTokens(cmd.Context()) },
	}
}

func newTokenRotateCmd(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "rotate NAME",
		Short: "Replace the token of a principal",
		Long: `Creates a new token for the principal NAME and prints it on standard output. The
old token stops working immediately. The role and the expiry stay, and so do the
sessions of the principal and their tokens. A token in the config must be changed
there.

` + tokenWhere,
		Example: `  tine token rotate ci
  tine token rotate ci --json | jq -r .token`,
		Args:              oneArg("the name of a token"),
		ValidArgsFunction: c.completeToken,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.rotateToken(cmd.Context(), args[0]) },
	}
}

func newTokenRevokeCmd(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke NAME",
		Aliases: []string{"rm"},
		Short:   "Revoke a token",
		Long: `Revokes the token of a principal. The gateway then refuses this token, and the
tokens of the principal's sessions until the principal has a token again. To
replace a token, use "tine token rotate". A token in the config must be removed
there.

` + tokenWhere,
		Example:           "  tine token revoke ci",
		Args:              oneArg("the name of a token"),
		ValidArgsFunction: c.completeToken,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.revokeToken(cmd.Context(), args[0]) },
	}
}

// tokens is where tokens are kept: a gateway, or a state folder without one.
type tokens interface {
	Tokens(context.Context) (*api.TokenList, error)
	NewToken(context.Context, api.NewToken) (*api.CreatedToken, error)
	RotateToken(ctx context.Context, name string) (*api.CreatedToken, error)
	ConfirmToken(ctx context.Context, name string) error
	ConfirmLost(ctx context.Context) error
	RevokeToken(ctx context.Context, name string) error
}

// createdToken is what --json prints: the gateway's answer, and the hash.
type createdToken struct {
	*api.CreatedToken
	Hash string `json:"hash"`
}

func (c *cli) newToken(ctx context.Context, t api.NewToken) error {
	var (
		first bool
		made  *api.CreatedToken
	)
	err := c.withTokens(ctx, func(ctx context.Context, all tokens) error {
		list, err := all.Tokens(ctx)
		if err != nil {
			return err
		}
		first = len(list.Tokens) == 0 && !list.Lost
		made, err = all.NewToken(ctx, t)
		return err
	})
	if err != nil {
		return err
	}
	hash := identity.HashToken(made.Secret)
	if c.flags.json {
		return c.printJSON(createdToken{made, hash})
	}
	fmt.Fprintln(c.stdout, made.Secret)
	until := ""
	if !made.Expires.IsZero() {
		until = " until " + made.Expires.Format(time.RFC3339)
	}
	c.say("\nThis is the token of %q, with the role %s%s. Keep it: it is not shown again.", made.Name, made.Role, until)
	c.say("\nUse it:\n\n  export TINE_TOKEN=TOKEN            for tine\n  Authorization: Bearer TOKEN        for MCP clients")
	c.say("\nIt works as it is. For gateways with other state folders, in their tine.yaml:\n\n  auth:\n    tokens:\n      - {name: %q, role: %s, hash: %q}", made.Name, made.Role, hash)
	if first {
		c.say("\nIt is the first one: from now on all callers need a token, also on this machine.\nOnly this user's own tine commands find the gateway's token in its state folder.")
	}
	return nil
}

func (c *cli) rotateToken(ctx context.Context, name string) error {
	var made *api.CreatedToken
	err := c.withTokens(ctx, func(ctx context.Context, all tokens) (err error) {
		if made, err = all.RotateToken(ctx, name); err != nil {
			return c.unknownToken(ctx, all, name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.answer(createdToken{made, identity.HashToken(made.Secret)}, made.Secret,
		fmt.Sprintf("\nThis is the token of %q from now on. Keep it: it is not shown again. The old one is refused.", made.Name))
}

func (c *cli) listTokens(ctx context.Context) error {
	var list *api.TokenList
	err := c.withTokens(ctx, func(ctx context.Context, all tokens) (err error) {
		list, err = all.Tokens(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if list.Tokens == nil {
		list.Tokens = []api.Token{}
	}
	if list.Lost && !c.flags.json {
		c.sayTokensLost()
		if len(list.Tokens) == 0 {
			return nil
		}
	}
	return c.list(list, c.tokenTable(list.Tokens), fmt.Sprintf("there is no token; `%s` makes one", c.own("tine token new NAME")))
}

func (c *cli) tokenTable(all []api.Token) *table {
	return listing(all, columns("NAME", "ROLE", "CREATED", "EXPIRES", "FROM"), func(t api.Token) []cell {
		row := cells(t.Name, t.Role, "", "never", "state folder")
		if !t.Created.IsZero() {
			row[2].text = c.age(t.Created) + " ago"
		}
		switch {
		case t.Unconfirmed:
			row[3] = cell{"to be confirmed", red}
		case t.Expires.IsZero():
		case !t.Expires.After(c.now()):
			row[3] = cell{"expired", red}
		default:
			row[3].text = t.Expires.In(c.now().Location()).Format("2006-01-02 15:04")
		}
		if t.Config {
			row[4].text = "config"
		}
		return row
	})
}

func (c *cli) revokeToken(ctx context.Context, name string) error {
	left := -1
	err := c.withTokens(ctx, func(ctx context.Context, all tokens) error {
		if err := all.RevokeToken(ctx, name); err != nil {
			return c.unknownToken(ctx, all, name, err)
		}
		if list, err := all.Tokens(ctx); err == nil { // it is revoked in any case
			left = len(list.Tokens)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var advice []string
	if left == 0 {
		advice = append(advice, "no token is left: unless the config has a sign-on, all callers on this machine are admitted again, and a gateway on a public address no longer starts")
	}
	return c.answer(map[string]string{"revoked": name}, name+": revoked", advice...)
}

// unknownToken adds similar names.
func (c *cli) unknownToken(ctx context.Context, all tokens, name string, err error) error {
	var ae *api.Error
	if !errors.As(err, &ae) || ae.Status != http.StatusNotFound {
		return err
	}
	list, lerr := all.Tokens(ctx)
	if lerr != nil {
		return err // the first error is reported
	}
	var names []string
	for _, t := range list.Tokens {
		names = append(names, t.Name)
	}
	return usagef("unknown token %q%s; see %s", name, didYouMean(name, names), c.own("tine token list"))
}

func newTokenConfirmCmd(c *cli) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "confirm NAME...",
		Short: "Confirm tokens that were restored from a backup",
		Long: `Confirms tokens that "tine state restore" restored. A backup can contain tokens that
were revoked later, so a restored token works only after it is confirmed. Revoke
the tokens that should not work.

If there were tokens and the restore found none of them, the gateway refuses
callers without a token. With --all it admits all callers on this machine again,
until a token is created.

` + tokenWhere,
		Example: `  tine token list
  tine token revoke mallory
  tine token confirm alice ci
  tine token confirm --all`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: c.completeToken,
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return usagef("name the tokens to confirm, or give --all; see %s", c.own("tine token list"))
			}
			return c.confirmTokens(cmd.Context(), args, all)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "confirm every unconfirmed token")
	return cmd
}

// sayTokensLost says why the gateway refuses callers after a restore that found no
// tokens.
func (c *cli) sayTokensLost() {
	c.say("no token is left, though there may have been some: the gateway refuses callers without a token until you make one (`%s`) or admit all callers on this machine again (`%s`)",
		c.own("tine token new NAME"), c.own("tine token confirm --all"))
}

func (c *cli) confirmTokens(ctx context.Context, names []string, every bool) error {
	lost := false
	var needless []string
	err := c.withTokens(ctx, func(ctx context.Context, all tokens) error {
		list, err := all.Tokens(ctx)
		if err != nil {
			return err
		}
		names, needless = slices.Clone(names), nil
		for _, t := range list.Tokens {
			at := slices.Index(names, t.Name)
			switch {
			case every && t.Unconfirmed:
				names = append(names, t.Name)
			case at >= 0 && !t.Unconfirmed:
				names, needless = slices.Delete(names, at, at+1), append(needless, t.Name)
			}
		}
		if every {
			if lost = list.Lost; lost {
				if err := all.ConfirmLost(ctx); err != nil {
					return err
				}
			}
		}
		for _, name := range names {
			if err := all.ConfirmToken(ctx, name); err != nil {
				return c.unknownToken(ctx, all, name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if c.flags.json {
		return c.printJSON(map[string]any{"confirmed": append([]string{}, names...), "lost": lost})
	}
	for _, name := range needless {
		fmt.Fprintln(c.stdout, visible(name+": needs no confirmation", c.outTerminal))
	}
	for _, name := range names {
		fmt.Fprintln(c.stdout, visible(name+": confirmed", c.outTerminal))
	}
	switch {
	case lost:
		fmt.Fprintln(c.stdout, "confirmed: there are no tokens, and the gateway admits all callers on this machine")
	case len(names)+len(needless) == 0:
		c.say("no token is unconfirmed")
	}
	return nil
}
