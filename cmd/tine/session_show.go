package main

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

func newSessionShowCmd(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show the details of a session",
		Long: `Shows the details of a session: its origin, its lifetime, its workspace, its
servers with their state and what a fork carries of each, and its snapshots. A fork
carries of a server:

  memory   all of its memory: the server continues where it was
  files    the files of its state and the workspace; the server restarts on them
  fresh    nothing: the server starts as in a new session
  share    the same instance, shared by both sessions
  refuse   nothing: the fork is refused, and the reason is shown

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
	s, err := askFor(ctx, g, g.Session, id)
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
	t := c.thing()
	c.sessionLines(t.line, s)
	t.print(memberTable(s.Members), c.snapshotTable(snaps, false))
	return nil
}

// memberTable lists the servers of a session.
func memberTable(members []api.Member) *table {
	columns := []column{{"SERVER", 0}, {"DRIVER", 0}, {"SCOPE", 0}, {"STATE", 0}, {"PROCESS", filled}, {"FORK", 0}, {"WHY", 0}}
	return listing(members, columns, func(m api.Member) []cell {
		row := cells(m.Server, m.Driver, m.Scope, m.State, processText(m.Process), m.Fork, m.Why)
		row[3].color = stateColor(m.State)
		if m.Fork == "refuse" {
			row[5].color = yellow
		}
		if m.Reason != "" {
			row[6] = cell{strings.TrimSuffix(api.WithWords(m.Reason, m.Words)+" · "+m.Why, " · "), stateColor(m.State)}
		}
		return row
	})
}

// processText is the id of a container as engines shorten it, or of a process.
func processText(p *api.Process) string {
	switch {
	case p == nil:
		return ""
	case p.Container != "":
		return fmt.Sprintf("container %.12s", p.Container)
	case p.PID != 0:
		return fmt.Sprintf("pid %d", p.PID)
	}
	return ""
}

func (c *cli) sessionLines(line func(name, value string), s *api.Session) {
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
	line("created", c.moment(s.Created))
	line("used", c.moment(s.Used))
	if !s.Closed.IsZero() {
		line("closed", strings.TrimSuffix(c.moment(s.Closed)+": "+s.Reason, ": "))
	} else {
		line("lasts", c.lasts(*s))
		line("calls", fmt.Sprintf("%d since the gateway started, %d running", s.Calls, s.InFlight))
	}
	for _, d := range s.Damaged {
		line("damaged", c.moment(d.At)+": "+d.Text())
	}
	line("url", s.URL)
	if w := s.Workspace; w != nil {
		line("workspace", strings.TrimSpace(w.Kind+" "+w.Path))
	}
}
