package main

import (
	"context"
	"encoding/json"
	"fmt"

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
until the run has ended, and prints its result.`,
		Example: `  tine runs logs 3f9a
  tine runs logs 3f9a --follow
  tine runs logs 3f9a --json | jq -r 'select(.type == "run.text") | .data.text'`,
		Args:              oneRun,
		ValidArgsFunction: c.completeRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			g, id, err := c.runRef(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if follow {
				return c.followRun(cmd.Context(), g, id)
			}
			return c.printEvents(cmd.Context(), g, client.EventFilter{Run: id, After: api.EventsFromStart, Once: true})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run has ended, and print its result")
	return cmd
}

// followRun prints the events of a run until it has ended, and then its result.
func (c *cli) followRun(ctx context.Context, g *gateway, id string) error {
	if err := c.printEvents(ctx, g, client.EventFilter{Run: id, After: api.EventsFromStart}); err != nil {
		return err
	}
	if c.flags.json {
		return nil // the last line says how it ended
	}
	return c.awaitRun(ctx, g, id)
}

func (c *cli) printEvents(ctx context.Context, g *gateway, f client.EventFilter) error {
	lines := json.NewEncoder(c.stdout)
	lines.SetEscapeHTML(false)
	for e, err := range g.Events(ctx, f) {
		if err != nil {
			return g.explain(mendRun(err))
		}
		if c.flags.json {
			if err := lines.Encode(e); err != nil {
				return err
			}
		} else if text := runEventText(e); text != "" {
			fmt.Fprintln(c.stdout, visible(text, c.outTerminal))
		}
		if !f.Once && api.RunEnded(e.State) {
			return nil
		}
	}
	return nil
}

// runEventText is an event of a run for people; empty for one that says nothing to them.
func runEventText(e api.Event) string {
	var d struct {
		Text      string          `json:"text"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Done      bool            `json:"done"`
		IsError   bool            `json:"is_error"`
		Cut       bool            `json:"cut"`
	}
	if len(e.Data) > 0 && json.Unmarshal(e.Data, &d) != nil {
		return oneLine(string(e.Data))
	}
	switch {
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
