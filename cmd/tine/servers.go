package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

func newServersCmd(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "servers",
		Short: "List the servers behind the gateway, or switch one on or off",
		Long: `Lists the servers behind the running gateway with their state.

A state with a star was changed at run time and differs from the config.`,
		Example: `  tine servers
  tine servers show files
  tine servers disable files
  tine servers --json | jq -r '.servers[] | select(.state == "failed") | .id'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return c.listServers(cmd.Context())
		},
		Args: cobra.ArbitraryArgs,
	}
	on, off := true, false
	cmd.AddCommand(
		&cobra.Command{
			Use:               "show SERVER",
			Short:             "Show all that is known of one server",
			Example:           "  tine servers show files",
			Args:              oneArg("the id of a server"),
			ValidArgsFunction: c.completeServer,
			RunE: func(cmd *cobra.Command, args []string) error {
				return c.showServer(cmd.Context(), args[0])
			},
		},
		c.patchCmd("enable", "Switch a server on until further notice", api.ServerPatch{Enabled: &on}),
		c.patchCmd("disable", "Switch a server off until further notice", api.ServerPatch{Enabled: &off}),
		c.patchCmd("reset", "Go back to what the config says of a server", api.ServerPatch{Reset: true}),
	)
	return cmd
}

func (c *cli) patchCmd(verb, short string, patch api.ServerPatch) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " SERVER",
		Short: short,
		Long: short + `.

What is switched here is kept over a restart of the gateway, and connected
clients are told that their lists changed. ` + "`tine servers reset`" + ` undoes it.`,
		Example:           "  tine servers " + verb + " files",
		Args:              oneArg("the id of a server"),
		ValidArgsFunction: c.completeServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.patchServer(cmd.Context(), args[0], patch)
		},
	}
}

func (c *cli) listServers(ctx context.Context) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	list, err := ask(ctx, g, g.Servers)
	if err != nil {
		return err
	}
	if c.flags.json {
		return c.printJSON(list)
	}
	if len(list.Servers) == 0 {
		fmt.Fprintln(c.stderr, "no servers are configured; add one under servers: in the config")
		return nil
	}
	t := table{header: []string{"SERVER", "STATE", "SCOPE", "DRIVER", "PROTOCOL", "SINCE", "TARGET/REASON"}}
	overridden := false
	for _, s := range list.Servers {
		overridden = overridden || s.Overridden
		last := plain(s.Target)
		if s.Reason != "" {
			last = cell{s.Reason, stateColor(s.State)}
		}
		t.add(plain(s.ID), cell{stateText(s), stateColor(s.State)}, plain(s.Scope), plain(s.Driver), plain(s.Protocol), plain(c.age(s.Since)), last)
	}
	t.print(c)
	if overridden {
		fmt.Fprintln(c.stderr, "* changed at run time; `tine servers reset SERVER` goes back to the config")
	}
	return nil
}

func (c *cli) showServer(ctx context.Context, id string) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	s, err := ask(ctx, g, func(ctx context.Context) (*api.Server, error) { return g.Server(ctx, id) })
	if err != nil {
		return c.unknownServer(ctx, g, id, err)
	}
	if c.flags.json {
		return c.printJSON(s)
	}
	var t table
	line := func(name, value string) {
		if value != "" {
			t.add(cell{name, bold}, plain(value))
		}
	}
	line("server", s.ID)
	line("title", s.Title)
	t.add(cell{"state", bold}, cell{stateText(*s), stateColor(s.State)})
	line("reason", s.Reason)
	if !s.Since.IsZero() {
		line("since", fmt.Sprintf("%s (%s)", s.Since.Format(time.RFC3339), c.age(s.Since)))
	}
	if s.Overridden {
		line("overridden", "changed at run time; `tine servers reset "+s.ID+"` goes back to the config")
	}
	line("enabled", strconv.FormatBool(s.Enabled))
	line("driver", s.Driver)
	line("scope", s.Scope)
	line("target", s.Target)
	line("protocol", s.Protocol)
	line("implementation", oneLine(s.ServerName+" "+s.ServerVer))
	line("instances", strconv.Itoa(s.Instances))
	line("restarts", strconv.Itoa(s.Restarts))
	t.print(c)
	return nil
}

func (c *cli) patchServer(ctx context.Context, id string, patch api.ServerPatch) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	s, err := ask(ctx, g, func(ctx context.Context) (*api.Server, error) { return g.PatchServer(ctx, id, patch) })
	if err != nil {
		return c.unknownServer(ctx, g, id, err)
	}
	if c.flags.json {
		return c.printJSON(s)
	}
	word := "disabled"
	if s.Enabled {
		word = "enabled"
	}
	switch {
	case s.Overridden:
		word += ", other than the config says"
	default:
		word += ", as the config says"
	}
	if s.Enabled && s.Reason != "" {
		word += "; " + s.State + ": " + s.Reason
	}
	fmt.Fprintln(c.stdout, visible(s.ID+": "+word, c.outTerminal))
	return nil
}

// unknownServer adds the names that were perhaps meant to the error of a server
// that is not there.
func (c *cli) unknownServer(ctx context.Context, g *gateway, id string, err error) error {
	var ae *api.Error
	if !errors.As(err, &ae) || ae.Status != http.StatusNotFound {
		return err
	}
	list, lerr := ask(ctx, g, g.Servers)
	if lerr != nil {
		return err // the first error is the one to tell
	}
	var ids []string
	for _, s := range list.Servers {
		ids = append(ids, s.ID)
	}
	return usagef("unknown server %q%s; see tine servers", id, didYouMean(id, ids))
}

func stateText(s api.Server) string {
	if s.Overridden {
		return s.State + "*"
	}
	return s.State
}

func stateColor(state string) string {
	switch state {
	case api.StateReady:
		return green
	case api.StateStarting:
		return yellow
	case api.StateFailed:
		return red
	case api.StateDisabled:
		return dim
	}
	return ""
}

// age is how long ago something was, in its largest unit.
func (c *cli) age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := max(0, c.now().Sub(t))
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}
