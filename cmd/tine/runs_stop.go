package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

func newRunStopCmd(c *cli) *cobra.Command {
	var tree, wait bool
	cmd := &cobra.Command{
		Use:   "stop ID...",
		Short: "Stop runs",
		Long: `Asks runs to end: the agent's program is told to stop, then ended after five
seconds, then killed. A run is "stopping" until then; with --wait the command ends
when the runs have. The session stays, and can be resumed. A run that has ended stays
as it is.

The agents that a run's agent has started go on. With --tree they are stopped, too,
with those that they have started, and none of them is resumed by the end of another.

With --json the runs are printed as they are then, and those of --tree in "below".`,
		Example: `  tine runs stop 3f9a
  tine runs stop 3f9a --tree --wait
  tine runs stop $(tine runs --status running --json | jq -r '.runs[].id')`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("runs stop wants the ids of runs; `tine runs` lists them")
			}
			return nil
		},
		ValidArgsFunction: c.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			g, err := c.connect()
			if err != nil {
				return err
			}
			ids := make([]string, len(args))
			for i, ref := range args {
				if ids[i], err = findRun(cmd.Context(), g, ref); err != nil {
					return err
				}
			}
			return c.stopRuns(cmd.Context(), g, ids, tree, wait)
		},
	}
	cmd.Flags().BoolVar(&tree, "tree", false, "also stop the agents that its agent has started, and those below them")
	cmd.Flags().BoolVarP(&wait, "wait", "w", false, "wait until they have ended")
	return cmd
}

// stopRuns stops runs, and prints what became of each.
func (c *cli) stopRuns(ctx context.Context, g *gateway, ids []string, tree, wait bool) error {
	var mu sync.Mutex
	stopped := make(map[string]*api.StoppedRun)
	done, err := c.toEach(ctx, ids, "stopped", func(id string) error {
		run, err := ask(ctx, g, func(ctx context.Context) (*api.StoppedRun, error) {
			if tree {
				return g.StopRunTree(ctx, id)
			}
			run, err := g.StopRun(ctx, id)
			if err != nil {
				return nil, err
			}
			return &api.StoppedRun{Run: *run}, nil
		})
		if err != nil {
			return mendRun(err)
		}
		mu.Lock()
		defer mu.Unlock()
		stopped[id] = run
		return nil
	})
	runs := []api.StoppedRun{}
	for _, id := range done {
		runs = append(runs, *stopped[id])
	}
	for i := 0; i < len(runs) && wait; i++ {
		if e := c.awaitStop(ctx, &runs[i]); e != nil {
			err = e
			break
		}
	}
	if c.flags.json {
		return c.printAll("runs", runs, err)
	}
	for _, run := range runs {
		for _, r := range append([]api.Run{run.Run}, run.Below...) {
			fmt.Fprintln(c.stdout, visible(r.ID+": "+stopText(r.State), c.outTerminal))
		}
	}
	return err
}

// awaitStop waits until a run that was stopped has ended, and those below it.
func (c *cli) awaitStop(ctx context.Context, run *api.StoppedRun) error {
	all := []*api.Run{&run.Run}
	for i := range run.Below {
		all = append(all, &run.Below[i])
	}
	for _, r := range all {
		if api.RunEnded(r.State) {
			continue
		}
		now, err := c.waitRun(ctx, r.ID, true)
		if err != nil {
			return err
		}
		*r = *now
	}
	return nil
}

// stopText is what became of a run that was to be stopped. One that completes or fails had
// done so before: it would be stopped else.
func stopText(state string) string {
	switch state {
	case api.RunCompleted, api.RunFailed:
		return state + " already"
	}
	return state
}
