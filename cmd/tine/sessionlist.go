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
		Short:   "List the sessions, the newest first",
		Long: `Lists the sessions that are open, the newest first: which one they were forked
from, whose they are where there are several owners, their labels, how old they
are, how long ago they were used, and how many calls were made in them since the
gateway started. Those that were not opened by somebody show their kind: default
is what a principal has at /mcp and is called so, named has a name and is at
/mcp?session=NAME, client ends with its connection.

--closed lists the closed ones too, and why they were closed.`,
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
	labelFlag(cmd, &labels, "only those with this label, KEY=VALUE; all of them when given several times")
	f.BoolVar(&q.Closed, "closed", false, "closed ones too")
	f.StringVar(&q.Owner, "owner", "", "only those of this principal")
	f.IntVar(&q.Limit, "limit", listedSessions, "at most so many")
	f.StringVar(&q.After, "after", "", "go on after this one, which a listing before ended with")
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
	if c.flags.json {
		return c.printJSON(all)
	}
	if len(all.Sessions) == 0 {
		c.say("no sessions are there that fit; `%s` opens one", c.own("tine session open"))
		return nil
	}
	c.sessionTable(all.Sessions, q.Closed)
	if all.Next != "" {
		c.say("there are more; go on with --after %s, or raise --limit", all.Next)
	}
	return nil
}

// sessionPages reads pages until there are as many as wanted.
func sessionPages(ctx context.Context, g *gateway, q client.SessionQuery, want int) (*api.SessionList, error) {
	all := &api.SessionList{Sessions: []api.Session{}}
	for {
		q.Limit = min(want-len(all.Sessions), sessionPage)
		page, err := ask(ctx, g, func(ctx context.Context) (*api.SessionList, error) { return g.Sessions(ctx, q) })
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

// sessionTable prints sessions. Columns that would say the same of all are left
// out.
func (c *cli) sessionTable(sessions []api.Session, closed bool) {
	owners := differ(sessions, func(s api.Session) string { return s.Owner })
	kinds := slices.ContainsFunc(sessions, func(s api.Session) bool { return s.Kind != api.SessionOpened })
	names := slices.ContainsFunc(sessions, func(s api.Session) bool { return s.Name != "" })
	damaged := slices.ContainsFunc(sessions, func(s api.Session) bool { return len(s.Damaged) > 0 })
	unserved := slices.ContainsFunc(sessions, func(s api.Session) bool { return unservedText(s) != "" })
	columns := []struct {
		name  string
		shown bool
		value func(api.Session) string
	}{
		{"ID", true, func(s api.Session) string { return s.ID }},
		{"PARENT", true, func(s api.Session) string { return s.Parent }},
		{"OWNER", owners, func(s api.Session) string { return s.Owner }},
		{"KIND", kinds, func(s api.Session) string { return s.Kind }},
		{"NAME", names, func(s api.Session) string { return s.Name }},
		{"LABELS", true, func(s api.Session) string { return labelText(s.Labels) }},
		{"AGE", true, func(s api.Session) string { return c.age(s.Created) }},
		{"USED", true, func(s api.Session) string { return c.age(s.Used) }},
		{"CALLS", true, func(s api.Session) string { return strconv.FormatInt(s.Calls, 10) }},
		{"DAMAGED", damaged, func(s api.Session) string { return damageText(s.Damaged) }},
		{"NOT SERVED", unserved, func(s api.Session) string { return strings.TrimPrefix(unservedText(s), "not served: ") }},
		{"CLOSED", closed, c.closedText},
	}
	t := table{whole: map[int]bool{0: true}}
	for _, col := range columns {
		if col.shown {
			t.header = append(t.header, col.name)
		}
	}
	for _, s := range sessions {
		color := ""
		if !s.Closed.IsZero() {
			color = dim
		}
		var row []cell
		for _, col := range columns {
			if col.shown {
				row = append(row, cell{col.value(s), color})
			}
		}
		t.add(row...)
	}
	t.print(c)
}

// unservedText says why an open session is not served; nothing of one that is.
func unservedText(s api.Session) string {
	if !s.Closed.IsZero() {
		return ""
	}
	return s.Reason
}

// closedText says when and why a session was closed; nothing of an open one.
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

// damageText says in one line what a session or a snapshot is damaged by.
func damageText(all []api.Damage) string {
	var out []string
	for _, d := range all {
		out = append(out, d.Text())
	}
	return strings.Join(out, "; ")
}

// differ reports whether not all have the same.
func differ[T any](all []T, of func(T) string) bool {
	return slices.ContainsFunc(all, func(v T) bool { return of(v) != of(all[0]) })
}
