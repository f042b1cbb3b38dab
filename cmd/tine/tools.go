package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

func newToolsCmd(c *cli) *cobra.Command {
	var o toolsOptions
	cmd := &cobra.Command{
		Use:   "tools [SERVER]",
		Short: "List the tools of all servers, or of one",
		Long: `Lists the tools behind the running gateway by the names that "tine call" and
clients of /mcp use. Servers that had to be left out are named on standard
error, with the reason. One that is asked for alone is waited for while it
starts, for as long as its connect_timeout lets it.

--grep lists those alone whose name or description has a match of a regular
expression, in capitals or not.

--session lists them as a session has them, by its id or the beginning of it.`,
		Example: `  tine tools
  tine tools files --schema
  tine tools --grep 'issue|ticket'
  tine tools --session 3f9a
  tine tools --json | jq -r '.tools[].name'`,
		Args:              upToOneArg,
		ValidArgsFunction: c.completeServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.server = args[0]
			}
			return c.listTools(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.schema, "schema", false, "print whole descriptions and input schemas")
	f.StringVar(&o.grep, "grep", "", "only tools whose name or description matches")
	f.StringVar(&o.session, "session", "", "as this session has them")
	c.completeFlag(cmd, "session", c.completeSessionFlag)
	c.completeFlag(cmd, "grep", cobra.NoFileCompletions)
	return cmd
}

// toolsOptions say which tools are listed, and how.
type toolsOptions struct {
	server, session, grep string
	schema                bool
}

func (c *cli) listTools(ctx context.Context, o toolsOptions) error {
	pattern, err := regexp.Compile("(?i)" + o.grep)
	if err != nil {
		return usagef("--grep %q is no regular expression: %s; a \\ before a character takes it as it is", o.grep, wrongPattern(err))
	}
	g, err := c.connect()
	if err != nil {
		return err
	}
	server, session := o.server, o.session
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
	all := len(list.Tools)
	list.Tools = slices.DeleteFunc(list.Tools, func(t api.Tool) bool {
		return !pattern.MatchString(t.Name) && !pattern.MatchString(t.Description)
	})
	switch {
	case c.flags.json:
		if err := c.printJSON(list); err != nil {
			return err
		}
	case len(list.Tools) == 0 && all > 0:
		c.say("none of %s matches %q", count(all, "tool"), o.grep)
	case o.schema:
		for i, t := range list.Tools {
			if i > 0 {
				fmt.Fprintln(c.stdout)
			}
			c.printTool(t)
		}
	default:
		listing(list.Tools, nil, func(t api.Tool) []cell { return []cell{{t.Name, bold}, {firstLine(t.Description), ""}} }).print(c)
	}
	for _, m := range list.Missing {
		c.say("left out: server %q: %s", m.Server, oneLine(m.Reason))
	}
	// All that was asked for is missing: that is a failure and not an empty list.
	if server != "" && all == 0 && len(list.Missing) > 0 {
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

// wrongPattern is what is wrong with a regular expression.
func wrongPattern(err error) string {
	var wrong *syntax.Error
	if errors.As(err, &wrong) {
		return string(wrong.Code)
	}
	return err.Error()
}

// firstLine is the first line of a text that says something.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return oneLine(line)
}
