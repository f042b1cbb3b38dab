package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// listedRuns is how many runs are listed unless --limit says another number.
const listedRuns = 50

func newRunsCmd(c *cli) *cobra.Command {
	var q client.RunQuery
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List the runs of agents, stop and resume them",
		Long: `Lists the runs of agents, the newest first. A run is one piece of work of an agent
in its session; a session has several where it was resumed.

ID is the id of a run, or a unique part of it from the beginning; run_ is optional.`,
		Example: `  tine runs
  tine runs --status running --agent reviewer
  tine runs show 3f9a --wait
  tine runs logs 3f9a --follow
  tine runs tree 3f9a
  tine runs send 3f9a "And now the tests"
  tine runs stop 3f9a`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if q.Limit < 1 {
				return usagef("--limit wants a number above 0, got %d", q.Limit)
			}
			return c.listRuns(cmd.Context(), q)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	f.StringVar(&q.Agent, "agent", "", "only runs of this agent")
	f.StringVar(&q.Session, "session", "", "only runs of this session")
	f.StringVar(&q.Parent, "parent", "", "only runs that the agent of this session has started")
	f.StringArrayVar(&q.State, "status", nil, "only runs in this state: "+strings.Join(runStates, ", ")+"; repeatable")
	f.IntVar(&q.Limit, "limit", listedRuns, "list at most this many")
	f.StringVar(&q.After, "after", "", "continue after this run, the last of the previous page")
	c.completeFlag(cmd, "status", cobra.FixedCompletions(runStates, cobra.ShellCompDirectiveNoFileComp))
	cmd.AddCommand(newRunShowCmd(c), newRunLogsCmd(c), newRunTreeCmd(c), newRunStopCmd(c), newRunResumeCmd(c), newRunSendCmd(c))
	return cmd
}

var runStates = []string{api.RunPending, api.RunClaimed, api.RunRunning, api.RunStopping, api.RunCompleted, api.RunFailed, api.RunStopped}

func (c *cli) listRuns(ctx context.Context, q client.RunQuery) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	all := &api.RunList{Runs: []api.Run{}}
	for want := q.Limit; ; {
		q.Limit = min(want-len(all.Runs), sessionPage)
		page, err := askFor(ctx, g, g.Runs, q)
		if err != nil {
			return mendRun(err)
		}
		all.Runs, all.Next = append(all.Runs, page.Runs...), page.Next
		if page.Next == "" || page.Next == q.After || len(all.Runs) >= want {
			break
		}
		q.After = page.Next
	}
	if err := c.list(all, c.runTable(all.Runs), fmt.Sprintf("no matching runs; `%s` starts an agent", c.own("tine run AGENT"))); err != nil {
		return err
	}
	if all.Next != "" && !c.flags.json {
		c.say("there are more; continue with --after %s, or raise --limit", all.Next)
	}
	return nil
}

func (c *cli) runTable(runs []api.Run) *table {
	columns := []column{{"ID", whole}, {"AGENT", 0}, {"STATE", 0}, {"SESSION", whole}, {"PARENT", filled}, {"OWNER", varied}, {"LABELS", filled}, {"AGE", 0}, {"TOOK", filled}, {"WHY", filled}}
	return listing(runs, columns, func(r api.Run) []cell {
		why := ""
		if r.Error != nil {
			why = cut(oneLine(r.Error.Message), 100)
		}
		row := cells(r.ID, r.Agent, r.State, r.Session, r.Parent, r.Owner, labelText(r.Labels), c.age(r.Created), took(r), why)
		row[2].color = runColor(r.State)
		return row
	})
}

// took is how long the work of a run has taken; empty while it goes on.
func took(r api.Run) string {
	if r.Ended.IsZero() || r.Started.IsZero() {
		return ""
	}
	return shortMillis(float64(r.Ended.Sub(r.Started)) / float64(time.Millisecond))
}

func runColor(state string) string {
	switch state {
	case api.RunFailed:
		return red
	case api.RunCompleted, api.RunStopped:
		return dim
	}
	return ""
}

// run finds a run by the beginning of its id.
func (c *cli) runRef(ctx context.Context, ref string) (*gateway, string, error) {
	g, err := c.connect()
	if err != nil {
		return nil, "", err
	}
	id, err := findRun(ctx, g, ref)
	return g, id, err
}

const (
	runPrefix = "run_"
	runDigits = 12
)

func findRun(ctx context.Context, g *gateway, ref string) (string, error) {
	part := strings.TrimPrefix(ref, runPrefix)
	if len(part) == runDigits {
		return runPrefix + part, nil
	}
	if part == "" {
		return "", usagef("%q is no id of a run; `tine runs` lists them", ref)
	}
	all, err := ask(ctx, g, func(ctx context.Context) ([]api.Run, error) {
		return upTo(10_000, g.AllRuns(ctx, client.RunQuery{Limit: sessionPage}))
	})
	if err != nil {
		return "", mendRun(err)
	}
	var found []string
	for _, r := range all {
		if strings.HasPrefix(strings.TrimPrefix(r.ID, runPrefix), part) {
			found = append(found, r.ID)
		}
	}
	switch len(found) {
	case 0:
		return "", usagef("no run begins with %q; `tine runs` lists them", ref)
	case 1:
		return found[0], nil
	}
	return "", usagef("%q may be %s; give more of the id", ref, several(found, "run"))
}
