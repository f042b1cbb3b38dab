package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// listedFamilies is how many families are drawn unless --limit says another
// number.
const listedFamilies = 20

func newSessionTreeCmd(c *cli) *cobra.Command {
	limit := listedFamilies
	cmd := &cobra.Command{
		Use:   "tree [ID]",
		Short: "Show the fork tree of sessions",
		Long: `Draws the fork tree of a session, from its first ancestor on, with the labels and
the age of each session. Closed sessions are included, dimmed if the terminal has
colours. Without an id the command draws the trees of all open sessions, the newest
first.

` + sessionIDs,
		Example: `  tine session tree
  tine session tree 3f9a
  tine session tree 3f9a --json | jq -r '.. | .session? | select(.) | .id'`,
		Args:              upToOneArg,
		ValidArgsFunction: c.completeSession,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return usagef("--limit wants a number above 0, got %d", limit)
			}
			if len(args) == 1 {
				return c.showFamily(cmd.Context(), args[0])
			}
			return c.showFamilies(cmd.Context(), limit)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", listedFamilies, "without an id: draw at most this many trees")
	return cmd
}

func (c *cli) showFamily(ctx context.Context, ref string) error {
	g, id, err := c.session(ctx, ref)
	if err != nil {
		return err
	}
	family, err := askFor(ctx, g, g.SessionTree, id)
	if err != nil {
		return mendSession(err)
	}
	if c.flags.json {
		return c.printJSON(family)
	}
	c.drawing(id).draw(family)
	return nil
}

// families is what --json prints without an id.
type families struct {
	Families []*api.Tree `json:"families"`
}

func (c *cli) showFamilies(ctx context.Context, limit int) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	var (
		all  = families{Families: []*api.Tree{}}
		seen = map[string]bool{}
		more bool
	)
	_, err = ask(ctx, g, func(ctx context.Context) (struct{}, error) {
		for s, err := range g.AllSessions(ctx, client.SessionQuery{Limit: sessionPage}) {
			if err != nil {
				return struct{}{}, err
			}
			if seen[s.ID] {
				continue
			}
			if more = len(all.Families) == limit; more {
				break
			}
			family, err := g.SessionTree(ctx, s.ID)
			if err != nil {
				return struct{}{}, err
			}
			seen[s.ID] = true // a family that is too large may leave it out
			note(family, seen)
			all.Families = append(all.Families, family)
		}
		return struct{}{}, nil
	})
	if err != nil {
		return mendSession(err)
	}
	if c.flags.json {
		return c.printJSON(all)
	}
	if len(all.Families) == 0 {
		c.say("no sessions are open; `%s` opens one", c.own("tine session open"))
		return nil
	}
	d := c.drawing("")
	for _, family := range all.Families {
		d.draw(family)
	}
	if more {
		c.say("there are more families; raise --limit, or name a session")
	}
	return nil
}

// note marks all sessions of a family.
func note(t *api.Tree, seen map[string]bool) {
	seen[t.Session.ID] = true
	for i := range t.Children {
		note(&t.Children[i], seen)
	}
}

// drawing draws families.
type drawing struct {
	c                        *cli
	meant                    string // the session that was asked for
	branch, last, bar, blank string // before a child, the last child, and the lines below them
}

func (c *cli) drawing(meant string) drawing {
	if c.unicode() {
		return drawing{c, meant, "├─ ", "└─ ", "│  ", "   "}
	}
	return drawing{c, meant, "|- ", "`- ", "|  ", "   "}
}

// unicode reports whether standard output shows more than ASCII: a terminal says so
// with the locale, and anything else takes all characters.
func (c *cli) unicode() bool { return !c.outTerminal || utf8Locale(runtime.GOOS, c.getenv) }

func utf8Locale(goos string, getenv func(string) string) bool {
	for _, key := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(getenv(key)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return goos == "windows" // its console takes Unicode in every locale
}

func (d drawing) draw(t *api.Tree) { d.node(t, "", "") }

// node draws a session and its descendants, with before in front of its line and
// below in front of the others.
func (d drawing) node(t *api.Tree, before, below string) {
	c, s := d.c, t.Session
	parts := []string{s.ID}
	if s.Kind != api.SessionOpened {
		parts = append(parts, "("+cmp.Or(s.Name, s.Kind)+")")
	}
	if labels := labelText(s.Labels); labels != "" {
		parts = append(parts, oneLine(labels))
	}
	parts = append(parts, c.age(s.Created))
	if len(s.Damaged) > 0 {
		parts = append(parts, "damaged")
	}
	color := ""
	switch {
	case !s.Closed.IsZero():
		parts, color = append(parts, "closed "+c.closedText(s)), dim
	case s.ID == d.meant:
		color = bold
	}
	d.line(before, color, parts)
	for i := range t.Children {
		if i == len(t.Children)-1 {
			d.node(&t.Children[i], below+d.last, below+d.blank)
		} else {
			d.node(&t.Children[i], below+d.branch, below+d.bar)
		}
	}
}

// line draws one line, with before in front of it.
func (d drawing) line(before, color string, parts []string) {
	c := d.c
	text := visible(strings.Join(parts, "  "), c.outTerminal)
	if c.width > 0 {
		before = cut(before, c.width)
		text = cut(text, max(1, c.width-len([]rune(before))))
	}
	fmt.Fprintln(c.stdout, before+c.paint(color, text))
}
