package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

func newToolsCmd(c *cli) *cobra.Command {
	var schema bool
	var session string
	cmd := &cobra.Command{
		Use:   "tools [SERVER]",
		Short: "List the tools of all servers, or of one",
		Long: `Lists the tools behind the running gateway by the names that "tine call" and
clients of /mcp use. Servers that had to be left out are named on standard
error, with the reason. One that is asked for alone is waited for while it
starts, for as long as its connect_timeout lets it.

--session lists them as a session has them, by its id or the beginning of it.`,
		Example: `  tine tools
  tine tools files --schema
  tine tools --session 3f9a
  tine tools --json | jq -r '.tools[].name'`,
		Args:              upToOneArg,
		ValidArgsFunction: c.completeServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			server := ""
			if len(args) == 1 {
				server = args[0]
			}
			return c.listTools(cmd.Context(), session, server, schema)
		},
	}
	cmd.Flags().BoolVar(&schema, "schema", false, "print whole descriptions and input schemas")
	cmd.Flags().StringVar(&session, "session", "", "as this session has them")
	c.completeFlag(cmd, "session", c.completeSessionFlag)
	return cmd
}

func (c *cli) listTools(ctx context.Context, session, server string, schema bool) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	if session != "" {
		if session, err = findSession(ctx, g, session); err != nil {
			return err
		}
	}
	list, err := c.toolsOf(ctx, g, session, server)
	if err != nil {
		if server != "" {
			err = c.unknownServer(ctx, g, server, err)
		}
		return mendSession(err)
	}
	switch {
	case c.flags.json:
		if err := c.printJSON(list); err != nil {
			return err
		}
	case schema:
		for i, t := range list.Tools {
			if i > 0 {
				fmt.Fprintln(c.stdout)
			}
			c.printTool(t)
		}
	default:
		var t table
		for _, tool := range list.Tools {
			t.add(cell{tool.Name, bold}, plain(firstLine(tool.Description)))
		}
		t.print(c)
	}
	for _, m := range list.Missing {
		fmt.Fprintln(c.stderr, visible(fmt.Sprintf("left out: server %q: %s", m.Server, oneLine(m.Reason)), c.errTerminal))
	}
	// All that was asked for is missing: that is a failure and not an empty list.
	if server != "" && len(list.Tools) == 0 && len(list.Missing) > 0 {
		return exitStatus(exitFailed)
	}
	return nil
}

func (c *cli) printTool(t api.Tool) {
	fmt.Fprintln(c.stdout, c.paint(bold, visible(oneLine(t.Name), c.outTerminal)))
	for line := range strings.Lines(strings.TrimSpace(t.Description)) {
		fmt.Fprintln(c.stdout, strings.TrimRight("  "+visible(strings.TrimRight(line, "\r\n"), c.outTerminal), " "))
	}
	if len(t.InputSchema) > 0 {
		fmt.Fprintln(c.stdout, "  "+visible(indent(t.InputSchema, "  "), c.outTerminal))
	}
}

// firstLine is the first line of a text that says something.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return oneLine(line)
}
