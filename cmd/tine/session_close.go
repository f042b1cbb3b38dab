package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// closeOptions are the flags of tine session close.
type closeOptions struct {
	all    bool
	yes    bool
	owner  string
	labels []string
}

func newSessionCloseCmd(c *cli) *cobra.Command {
	var o closeOptions
	cmd := &cobra.Command{
		Use:     "close ID...",
		Aliases: []string{"rm"},
		Short:   "Close sessions and delete their state",
		Long: `Closes sessions: stops their servers and deletes their state and their automatic
snapshots. Other snapshots and forks stay, and so do the calls in the journal, for
"tine session export". Closing a closed session is not an error.

All connections of a principal share its default session and its named sessions.
On a terminal Tine asks for confirmation before it closes one of these; --yes skips
the question, and is required without a terminal.

--all closes every explicitly opened session, or those that match --label and
--owner. On a terminal Tine asks for confirmation if neither is given; --yes skips
the question.

` + sessionIDs,
		Example: `  tine session close 3f9a
  tine session close ses_3f9a1c0de7b2 ses_88e01b5d2c47
  tine session close --all --label run=7
  tine session close --all --yes`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.all && len(args) > 0:
				return usagef("close takes ids or --all, not both")
			case !o.all && (len(o.labels) > 0 || o.owner != ""):
				return usagef("--label and --owner choose among all sessions; add --all")
			case !o.all && len(args) == 0:
				return usagef("%s wants the id of a session, or --all; see %s --help", short(cmd), cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: c.completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.all {
				return c.closeAll(cmd.Context(), o)
			}
			return c.closeSessions(cmd.Context(), args, o.yes)
		},
	}
	cmd.Flags().BoolVar(&o.all, "all", false, "close all sessions, or those that match --label and --owner")
	labelFlag(cmd, &o.labels, "with --all: only sessions with this label, KEY=VALUE; repeatable, and all must match")
	cmd.Flags().StringVar(&o.owner, "owner", "", "with --all: only sessions of this principal")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

func (c *cli) closeSessions(ctx context.Context, refs []string, yes bool) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	ids, err := findSessions(ctx, g, refs)
	if err != nil {
		return err
	}
	if !yes {
		if ok, err := c.confirmDurable(ctx, g, ids); err != nil {
			return err
		} else if !ok {
			c.say("nothing was closed")
			return exitStatus(exitFailed)
		}
	}
	return c.closeEach(ctx, g, ids)
}

// confirmDurable asks before it closes default and named sessions, which all
// connections of a principal share.
func (c *cli) confirmDurable(ctx context.Context, g *gateway, ids []string) (bool, error) {
	texts := make([]string, len(ids))
	err := inParallel(ctx, len(ids), func(i int) error {
		s, err := ask(ctx, g, func(ctx context.Context) (*api.Session, error) { return g.Session(ctx, ids[i]) })
		if ae := (*api.Error)(nil); errors.As(err, &ae) && slices.Contains([]int{http.StatusNotFound, http.StatusGone, http.StatusConflict}, ae.Status) {
			return nil // the close reports that it does not exist
		}
		if err != nil {
			return mendSession(err)
		}
		if s.Closed.IsZero() && (s.Kind == api.SessionDefault || s.Kind == api.SessionNamed) {
			texts[i] = durableText(s)
		}
		return nil
	})
	texts = slices.DeleteFunc(texts, func(text string) bool { return text == "" })
	if err != nil || len(texts) == 0 {
		return err == nil, err
	}
	what := strings.Join(texts, "\n")
	if !c.inTerminal {
		return false, usagef("%s; standard input is no terminal to ask on; add --yes to close it", what)
	}
	return c.confirm(ctx, what+".\nClose it for good?")
}

// durableText says what is lost with a durable session.
func durableText(s *api.Session) string {
	sharers := "all callers without a token"
	switch {
	case s.Owner != "" && s.Kind == api.SessionNamed:
		sharers = "all connections of " + s.Owner + " to it"
	case s.Owner != "":
		sharers = "all connections of " + s.Owner
	case s.Kind == api.SessionNamed:
		sharers = "all its callers without a token"
	}
	return fmt.Sprintf("%s is session %q: the memory, files and tables that %s share are gone with it", s.ID, s.Name, sharers)
}

func (c *cli) closeAll(ctx context.Context, o closeOptions) error {
	labels, err := parseLabels(o.labels)
	if err != nil {
		return err
	}
	g, err := c.connect()
	if err != nil {
		return err
	}
	ids, err := ask(ctx, g, func(ctx context.Context) (ids []string, _ error) {
		for s, err := range g.AllSessions(ctx, client.SessionQuery{Owner: o.owner, Labels: labels, Limit: sessionPage}) {
			if err != nil {
				return nil, err
			}
			// The session of a principal or of a connection is not closed along
			// with others.
			if s.Kind == api.SessionOpened {
				ids = append(ids, s.ID)
			}
		}
		return ids, nil
	})
	if err != nil {
		return mendSession(err)
	}
	if len(ids) > 0 && len(labels) == 0 && o.owner == "" && !o.yes {
		if !c.inTerminal {
			return usagef("close --all would close %s, and standard input is no terminal to ask on; add --label, --owner or --yes", count(len(ids), "session"))
		}
		ok, err := c.confirm(ctx, fmt.Sprintf("Close %s?", several(ids, "session")))
		if err != nil {
			return err
		}
		if !ok {
			c.say("nothing was closed")
			return exitStatus(exitFailed)
		}
	}
	if len(ids) == 0 {
		c.say("no matching open sessions")
	}
	return c.closeEach(ctx, g, ids)
}

func (c *cli) closeEach(ctx context.Context, g *gateway, ids []string) error {
	closed, err := c.toEach(ctx, ids, "closed", func(id string) error {
		return g.explain(mendSession(g.CloseSession(ctx, id)))
	})
	return c.printEach(closed, "closed", err)
}

// toEach does something to each of several things, some at once, and continues
// after a failure. It returns those that succeeded.
func (c *cli) toEach(ctx context.Context, names []string, what string, do func(string) error) ([]string, error) {
	failed := make([]error, len(names)) // reported in the order of the names
	ok := make([]bool, len(names))
	bar := c.counting(what, len(names))
	over := inParallel(ctx, len(names), func(i int) error {
		err := do(names[i])
		if err == nil {
			ok[i] = true
			bar.add(1)
			return nil
		}
		failed[i] = err
		return ctx.Err()
	})
	bar.stop()
	errs := slices.DeleteFunc(failed, func(err error) bool { return err == nil })
	var done []string
	for i, name := range names {
		if ok[i] {
			done = append(done, name)
		}
	}
	switch {
	case over != nil: // interrupted
		return done, over
	case len(errs) == 0:
		return done, nil
	case len(names) == 1:
		return done, errs[0]
	}
	return done, failures(errs)
}

// printEach prints what was done, and returns err.
func (c *cli) printEach(done []string, what string, err error) error {
	if c.flags.json {
		if done == nil {
			done = []string{}
		}
		return c.printAll(what, done, err)
	}
	for _, name := range done {
		fmt.Fprintln(c.stdout, visible(name+": "+what, c.outTerminal))
	}
	return err
}

// printAll prints several results for programs, with the errors of those that
// failed, and returns the error.
func (c *cli) printAll(name string, all any, err error) error {
	out := map[string]any{name: all}
	each, several := err.(failures)
	if err != nil && !several {
		each = failures{err}
	}
	if len(each) > 0 {
		var errs []errorObject
		for _, err := range each {
			errs = append(errs, c.errorObject(err))
		}
		out["errors"] = errs
	}
	if perr := c.printJSON(out); err == nil {
		err = perr
	}
	return err
}

// oneOrMore wants at least one argument.
func oneOrMore(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("%s wants %s; see %s --help", short(cmd), what, cmd.CommandPath())
		}
		return nil
	}
}
