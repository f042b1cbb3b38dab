package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

func newTokenConfirmCmd(c *cli) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "confirm NAME...",
		Short: "Confirm tokens that came back with a backup",
		Long: `Confirms tokens that came back with ` + "`tine state restore`" + `. A token that was revoked
after the backup was made is in the backup too, so no token of a backup works
before it is confirmed. Revoke those that should not work.

Where there were tokens and the restore found none of them, the gateway refuses
callers without a token too. With --all it admits all callers on this machine
again, until a token is made.

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
	cmd.Flags().BoolVar(&all, "all", false, "confirm every token that waits for it")
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
	err := c.withTokens(ctx, func(ctx context.Context, all tokens) error {
		if every {
			names = []string{}
			list, err := all.Tokens(ctx)
			if err != nil {
				return err
			}
			for _, t := range list.Tokens {
				if t.Unconfirmed {
					names = append(names, t.Name)
				}
			}
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
		return c.printJSON(map[string]any{"confirmed": names, "lost": lost})
	}
	for _, name := range names {
		fmt.Fprintln(c.stdout, visible(name+": confirmed", c.outTerminal))
	}
	switch {
	case lost:
		fmt.Fprintln(c.stdout, "confirmed: there are no tokens, and the gateway admits all callers on this machine")
	case len(names) == 0:
		c.say("no token waits to be confirmed")
	}
	return nil
}
