package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/internal/config"
)

func newReplayCmd(c *cli) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "replay ID",
		Short: "Repeat a tool call from the journal",
		Long: `Repeats a tool call from the journal with the same arguments, and prints the
result as "tine call" does: --json prints it exactly as the server sent it, and
the exit code is 1 when the tool or the server failed. The new call has its own
id in the journal, which is printed on standard error.

The arguments are the original ones, not the masked ones of "tine calls". Only a
tool call whose arguments are in the journal can be repeated: a server with
journal: meta has none there, and lists and prompts are not tool calls.

The side effects of the tool happen again. On a terminal Tine shows the call and
asks for confirmation; --yes skips the question, and is required without a
terminal.`,
		Example: `  tine replay call_00000000002a
  tine replay call_00000000002a --yes --json
  tine calls --failed --server files --limit 1 --json | jq -r '.calls[].id' | xargs tine replay --yes`,
		Args:              oneArg("the id of a call, as in tine calls"),
		ValidArgsFunction: c.completeToolCallID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.replay(cmd.Context(), args[0], yes)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

func (c *cli) replay(ctx context.Context, id string, yes bool) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	if !yes {
		ok, err := c.confirmReplay(ctx, g, id)
		if err != nil {
			return err
		}
		if !ok {
			c.say("nothing was called")
			return exitStatus(exitFailed)
		}
	}
	again, err := g.Replay(ctx, id) // as long as the tool takes
	if err != nil {
		return g.explain(unknownCall(id, err))
	}
	if again.ID != "" {
		c.say("%s was made again as %s", id, again.ID)
	}
	return c.printResult(again.Result, "")
}

// confirmReplay shows the call and asks, unless it can't be repeated anyway.
func (c *cli) confirmReplay(ctx context.Context, g *gateway, id string) (bool, error) {
	call, err := askFor(ctx, g, g.JournalCall, id)
	if err != nil {
		return false, unknownCall(id, err)
	}
	switch {
	case call.Method != "tools/call":
		return false, usagef("call %s is a %s and not a tool call; only tool calls can be made again", id, call.Method)
	case call.Journal != config.JournalFull:
		return false, usagef("the journal of server %q keeps no arguments (journal: %s), so call %s can't be made again", call.Server, call.Journal, id)
	}
	if !c.inTerminal {
		return false, usagef("replay repeats the effects of a call, and standard input is no terminal to ask on; add --yes")
	}
	what := strings.TrimSpace(fmt.Sprintf("%s %s %s", call.Server, call.Name, cut(compactJSON(call.Arguments), 500)))
	return c.confirm(ctx, fmt.Sprintf("%s, called %s ago\nCall it again?", what, c.age(call.At)))
}
