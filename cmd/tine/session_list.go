package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// listedSessions is how many sessions are listed unless --limit says another
// number.
const listedSessions = 50

func newSessionListCmd(c *cli) *cobra.Command {
	var (
		q      client.SessionQuery
		labels []string
	)
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List sessions, the newest first",
		Long: `Lists the open sessions, the newest first: the parent session, the owner if there
are several, the labels, the age, the time since the last use, and the number of
calls since the gateway started. Implicit sessions show their kind: default is the
session of a principal at /mcp, named is a session of /mcp?session=NAME, and client
is a session that ends with its connection.

--closed also lists closed sessions, with the reason.`,
		Example: `  tine session list
  tine session list --label run=7
  tine session list --closed --limit 200
  tine session list --json | jq -r '.sessions[] | select(.calls == 0) | .id'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if q.Limit < 1 {
				return usagef("--limit wants a number above 0, got %d", q.Limit)
			}
			if q.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			return c.listSessions(cmd.Context(), q)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	labelFlag(cmd, &labels, "only sessions with this label, KEY=VALUE; repeatable, and all must match")
	f.BoolVar(&q.Closed, "closed", false, "also list closed sessions")
	f.StringVar(&q.Owner, "owner", "", "only sessions of this principal")
	f.IntVar(&q.Limit, "limit", listedSessions, "list at most this many")
	f.StringVar(&q.After, "after", "", "continue after this session, the last of the previous page")
	c.completeFlag(cmd, "after", cobra.NoFileCompletions)
	return cmd
}

func (c *cli) listSessions(ctx context.Context, q client.SessionQuery) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	if q.After != "" {
		if q.After, err = findSession(ctx, g, q.After); err != nil {
			return err
		}
	}
	all, err := sessionPages(ctx, g, q, q.Limit)
	if err != nil {
		return mendSession(err)
	}
	none := fmt.Sprintf("no matching sessions; `%s` opens one", c.own("tine session open"))
	if err := c.list(all, c.sessionTable(all.Sessions, q.Closed), none); err != nil {
		return err
	}
	if all.Next != "" && !c.flags.json {
		c.say("there are more; continue with --after %s, or raise --limit", all.Next)
	}
	return nil
}

// sessionPages reads pages until there are as many as wanted.
func sessionPages(ctx context.Context, g *gateway, q client.SessionQuery, want int) (*api.SessionList, error) {
	all := &api.SessionList{Sessions: []api.Session{}}
	for {
		q.Limit = min(want-len(all.Sessions), sessionPage)
		page, err := askFor(ctx, g, g.Sessions, q)
		if err != nil {
			return nil, err
		}
		all.Sessions = append(all.Sessions, page.Sessions...)
		all.Next = page.Next
		if page.Next == "" || page.Next == q.After || len(all.Sessions) >= want {
			return all, nil
		}
		q.After = page.Next
	}
}

// sessionTable lists sessions.
func (c *cli) sessionTable(sessions []api.Session, closed bool) *table {
	kinds := slices.ContainsFunc(sessions, func(s api.Session) bool { return s.Kind != api.SessionOpened })
	columns := []column{
		{"ID", whole}, {"PARENT", 0}, {"OWNER", varied}, {"KIND", when(kinds)}, {"NAME", filled}, {"LABELS", 0},
		{"AGE", 0}, {"USED", 0}, {"CALLS", 0}, {"DAMAGED", filled}, {"NOT SERVED", filled}, {"CLOSED", when(closed)},
	}
	return listing(sessions, columns, func(s api.Session) []cell {
		row := cells(s.ID, s.Parent, s.Owner, s.Kind, s.Name, labelText(s.Labels), c.age(s.Created), c.age(s.Used),
			strconv.FormatInt(s.Calls, 10), damageText(s.Damaged), strings.TrimPrefix(unservedText(s), "not served: "), c.closedText(s))
		for i := range row {
			if !s.Closed.IsZero() {
				row[i].color = dim
			}
		}
		return row
	})
}

// unservedText says why an open session is not served; empty if it is.
func unservedText(s api.Session) string {
	if !s.Closed.IsZero() {
		return ""
	}
	return s.Reason
}

// closedText says when and why a session was closed; empty for an open one.
func (c *cli) closedText(s api.Session) string {
	if s.Closed.IsZero() {
		return ""
	}
	text := fmt.Sprintf("%s ago", c.age(s.Closed))
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	return text
}

// damageText is the damage of a session or a snapshot in one line.
func damageText(all []api.Damage) string {
	var out []string
	for _, d := range all {
		out = append(out, d.Text())
	}
	return strings.Join(out, "; ")
}
