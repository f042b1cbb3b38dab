package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

func newRunLogsCmd(c *cli) *cobra.Command {
	follow := false
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Print what the agent of a run did",
		Long: `Prints the events of a run from its beginning: what the model said, the tools that
it called, and what its program wrote to standard error. With --follow it goes on
until the run has ended, also while the gateway is restarted, and prints its result;
the exit status is then that of "tine run --wait". With --json each event is a line, and
with --follow the run as it has ended the last one.`,
		Example: `  tine runs logs 3f9a
  tine runs logs 3f9a --follow
  tine runs logs 3f9a --json | jq -r 'select(.type == "run.text") | .data.text'
  tine runs logs 3f9a --follow --json | tail -n 1 | jq .state`,
		Args:              oneRun,
		ValidArgsFunction: c.completeRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			g, id, err := c.runRef(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			// The feed of events would not tell that there is no such run.
			run, err := ask(cmd.Context(), g, func(ctx context.Context) (*api.Run, error) { return g.Run(ctx, id, 0) })
			if err != nil {
				return mendRun(err)
			}
			if follow {
				return c.followRun(cmd.Context(), id, false)
			}
			_, err = c.printEvents(cmd.Context(), client.EventFilter{Run: id, After: api.EventsFromStart, Once: true}, false)
			if err == nil && !c.flags.json && (run.State == api.RunFailed || run.State == api.RunStopped) {
				c.sayResult(run)
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run has ended, and print its result")
	return cmd
}

// followRun prints the events of a run until the run has ended, those of the runs that follow
// from it, and the result of the last run, unless the agent has said just that last. known
// says that the gateway has answered before.
func (c *cli) followRun(ctx context.Context, id string, known bool) error {
	said := ""
	events := func(id string) (err error) {
		said, err = c.printEvents(ctx, client.EventFilter{Run: id, After: api.EventsFromStart}, known)
		return err
	}
	if err := events(id); err != nil {
		return err
	}
	known = true
	run, err := c.waitRun(ctx, id, true)
	if err == nil {
		run, err = c.lastRun(ctx, run, events)
	}
	if err != nil {
		return err
	}
	if c.flags.json {
		return cmp.Or(c.jsonLines().Encode(run), runStatus(run))
	}
	if run.State == api.RunCompleted && run.Result != nil && len(run.Result.Data) == 0 && run.Result.Text == said {
		return nil
	}
	return c.runResult(run)
}

// errEnough ends the reading of events.
var errEnough = errors.New("enough")

// printEvents prints events of a run, and returns what its agent has said last.
func (c *cli) printEvents(ctx context.Context, filter client.EventFilter, known bool) (said string, err error) {
	f := client.EventFollower{EventFilter: filter}
	lines := c.jsonLines()
	var failed error
	err = c.keepRunning(ctx, func(g *gateway) (came bool, err error) {
		err = f.Run(ctx, g.Client, func(e api.Event) error {
			came, known = true, true
			if c.flags.json {
				failed = lines.Encode(e)
			} else if text := runEventText(e); text != "" {
				if e.Type == api.EventRunText {
					said = text
				}
				if e.State == api.RunPending && !f.Once {
					text += waitText(ctx, g, e.Run)
				}
				fmt.Fprintln(c.stdout, visible(text, c.outTerminal))
			}
			if failed != nil || !f.Once && api.RunEnded(e.State) {
				return errEnough
			}
			return nil
		})
		if errors.Is(err, errEnough) {
			return came, nil
		}
		return came, goneIf(known, err)
	})
	return said, cmp.Or(failed, mendRun(err))
}

// waitText is why a run is pending, where it still is and does not start now.
func waitText(ctx context.Context, g *gateway, id string) string {
	run, err := ask(ctx, g, func(ctx context.Context) (*api.Run, error) { return g.Run(ctx, id, 0) })
	if err != nil || run.WaitsFor == "" {
		return "" // a gateway that is away is noticed with the next event
	}
	return ": it waits for " + run.WaitsFor
}

const (
	// waitSoon is how long a run may be pending before the command says why.
	waitSoon = time.Second
	// waitLong is how long one request waits for the end of a run.
	waitLong = 30 * time.Second
	// waitPause is between two of them: a gateway that is ending answers at once.
	waitPause = 250 * time.Millisecond
)

// waitRun returns a run when it has ended, also if the gateway is restarted meanwhile.
func (c *cli) waitRun(ctx context.Context, id string, known bool) (run *api.Run, err error) {
	said, wait := "", waitSoon
	if !known {
		wait = 0
	}
	err = c.keepRunning(ctx, func(g *gateway) (came bool, err error) {
		for {
			at, err := g.Run(ctx, id, wait)
			if err != nil {
				return came, goneIf(known, err)
			}
			came, known = true, true
			if api.RunEnded(at.State) {
				run = at
				return came, nil
			}
			if wait < waitSoon {
				wait = waitSoon
				continue
			}
			wait = waitLong
			if at.WaitsFor != "" && at.WaitsFor != said {
				said = at.WaitsFor
				c.say("run %s is %s: it waits for %s", id, at.State, said)
			}
			select {
			case <-ctx.Done():
				return came, ctx.Err()
			case <-c.after(waitPause):
			}
		}
	})
	return run, mendRun(err)
}

// goneIf is an error of a gateway that may have answered before. If it is away now, or has
// another token since it was started again, keepRunning is to take that for a stream that
// broke off.
func goneIf(known bool, err error) error {
	var ae *api.Error
	switch {
	case !known || err == nil:
		return err
	case errors.As(err, &ae) && (ae.Retryable || ae.Status == http.StatusUnauthorized), errors.Is(err, client.ErrNoGateway), brokenOff(err):
		return gone{err}
	}
	return err
}

type gone struct{ error }

func (e gone) Is(target error) bool { return target == client.ErrBrokenOff }
func (e gone) Unwrap() error        { return e.error }

// runEventText is an event of a run for people; empty for one that says nothing to them.
func runEventText(e api.Event) string {
	var d struct {
		Text      string          `json:"text"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Done      bool            `json:"done"`
		IsError   bool            `json:"is_error"`
		Cut       bool            `json:"cut"`
		LeftOut   string          `json:"left_out"`
	}
	if len(e.Data) > 0 && json.Unmarshal(e.Data, &d) != nil {
		return oneLine(string(e.Data))
	}
	if d.Cut {
		d.Text += " (the rest was cut)"
	}
	switch {
	case d.LeftOut != "":
		return "(" + d.LeftOut + ")"
	case e.Type == api.EventGap:
		return "(events are missing here)"
	case e.State != "":
		return "run is " + e.State
	case d.Name != "":
		return oneLine("-> " + d.Name + " " + string(d.Arguments))
	case d.Done && d.IsError:
		return oneLine("<- error: " + d.Text)
	case d.Done:
		return oneLine("<- " + d.Text)
	}
	return d.Text
}
