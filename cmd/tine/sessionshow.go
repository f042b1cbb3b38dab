package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

func newSessionShowCmd(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show all that is known of one session",
		Long: `Shows all that is known of one session: where it comes from, how long it lasts, its
workspace, its servers with their state and what a fork carries of each, and its
snapshots. A fork carries of a server

  memory   all that it has in memory, as it is
  files    what it keeps in its state or in the workspace; it starts anew on that
  fresh    nothing: it begins as in a new session
  share    the same instance
  refuse   the fork is refused, and why is said

` + sessionIDs,
		Example: `  tine session show ses_3f9a1c0de7b2
  tine session show 3f9a
  tine session show 3f9a --json | jq -r '.members[] | select(.fork == "refuse") | .why'`,
		Args:              oneArg("the id of a session"),
		ValidArgsFunction: c.completeSession,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.showSession(cmd.Context(), args[0]) },
	}
}

// shownSession is what --json prints.
type shownSession struct {
	*api.Session
	Snapshots []api.Snapshot `json:"snapshots"`
}

func (c *cli) showSession(ctx context.Context, ref string) error {
	g, id, err := c.session(ctx, ref)
	if err != nil {
		return err
	}
	s, err := ask(ctx, g, func(ctx context.Context) (*api.Session, error) { return g.Session(ctx, id) })
	if err != nil {
		return mendSession(err)
	}
	snaps, err := snapshotsOf(ctx, g, id, math.MaxInt)
	if err != nil {
		return mendSession(err)
	}
	if c.flags.json {
		return c.printJSON(shownSession{s, snaps})
	}
	// Nothing of it is cut: ids, paths and what would mend something are there to
	// be used.
	whole := *c
	whole.width = 0
	whole.printSession(s)
	if len(s.Members) > 0 {
		fmt.Fprintln(c.stdout)
		t := table{header: []string{"SERVER", "DRIVER", "SCOPE", "STATE", "FORK", "WHY"}}
		for _, m := range s.Members {
			why := cell{text: m.Why}
			if m.Reason != "" {
				why = cell{strings.TrimSuffix(api.WithWords(m.Reason, m.Words)+" · "+m.Why, " · "), stateColor(m.State)}
			}
			carries := cell{text: m.Fork}
			if m.Fork == "refuse" {
				carries.color = yellow
			}
			t.add(plain(m.Server), plain(m.Driver), plain(m.Scope), cell{m.State, stateColor(m.State)}, carries, why)
		}
		t.print(&whole)
	}
	if len(snaps) > 0 {
		fmt.Fprintln(c.stdout)
		whole.snapshotTable(snaps, false)
	}
	return nil
}

func (c *cli) printSession(s *api.Session) {
	var t table
	line := func(name, value string) {
		if value != "" {
			t.add(cell{name, bold}, plain(value))
		}
	}
	moment := func(at time.Time) string {
		if at.IsZero() {
			return ""
		}
		return fmt.Sprintf("%s (%s ago)", at.In(c.now().Location()).Format(time.RFC3339), c.age(at))
	}
	line("session", s.ID)
	if s.Kind != api.SessionOpened {
		line("kind", s.Kind)
	}
	line("name", s.Name)
	line("owner", s.Owner)
	line("labels", labelText(s.Labels))
	if s.Parent != "" {
		line("parent", fmt.Sprintf("%s, %s away from the first", s.Parent, count(s.Depth, "fork")))
	}
	line("from", s.From)
	line("created", moment(s.Created))
	line("used", moment(s.Used))
	if !s.Closed.IsZero() {
		line("closed", strings.TrimSuffix(moment(s.Closed)+": "+s.Reason, ": "))
	} else {
		line("lasts", c.lasts(*s))
		line("calls", fmt.Sprintf("%d since the gateway started, %d under way", s.Calls, s.InFlight))
	}
	for _, d := range s.Damaged {
		line("damaged", moment(d.At)+": "+d.Text())
	}
	line("url", s.URL)
	if w := s.Workspace; w != nil {
		line("workspace", strings.TrimSpace(w.Kind+" "+w.Path))
	}
	t.print(c)
}
