package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

func newServersCmd(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "servers",
		Short: "List, add, remove and change servers",
		Long: `Lists the servers of the running gateway: state, median latency of the last calls,
circuit breaker, calls queued by a limit, calls since the gateway started, time in
the current state, and the reason why a server failed or is disabled, else its
last error. "tine servers show" shows more, and --json shows everything.

A star after a state marks a server that was changed at run time and differs from
the config. Changes survive a restart of the gateway, until they are changed again
or removed with unset or reset.`,
		Example: `  tine servers
  tine servers show files
  tine servers add search https://search.example.com/mcp
  tine servers disable files
  tine servers set files timeout=10s policy.retry.attempts=5
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
			Use:     "list",
			Aliases: []string{"ls"},
			Short:   "List the servers of the gateway",
			Long:    `Lists the servers, as "tine servers" without a command does.`,
			Example: "  tine servers list\n  tine servers ls --json",
			Args:    noArgs,
			RunE:    func(cmd *cobra.Command, _ []string) error { return c.listServers(cmd.Context()) },
		},
		&cobra.Command{
			Use:   "show SERVER",
			Short: "Show the details of a server",
			Long: `Shows the details of a server: its state, its driver and command or URL, its calls,
its effective policy, its run-time changes, its last error, and the status of its
login.`,
			Example: `  tine servers show files
  tine servers show files --json | jq .policy`,
			Args:              oneArg("the id of a server"),
			ValidArgsFunction: c.completeServer,
			RunE: func(cmd *cobra.Command, args []string) error {
				return c.showServer(cmd.Context(), args[0])
			},
		},
		c.switchCmd("enable", "Enable a server at run time", api.ServerPatch{Enabled: &on}),
		c.switchCmd("disable", "Disable a server at run time", api.ServerPatch{Enabled: &off}),
		c.switchCmd("reset", "Remove all run-time changes of a server", api.ServerPatch{Reset: true}),
		newServersAddCmd(c),
		newServersRemoveCmd(c),
		newServersSetCmd(c),
		newServersUnsetCmd(c),
		newServersHeaderCmd(c),
		newServersSecretCmd(c),
	)
	return cmd
}

func (c *cli) switchCmd(verb, short string, patch api.ServerPatch) *cobra.Command {
	long := short + `.

The change survives a restart of the gateway, and connected clients are notified
that their lists changed. "tine servers reset" undoes it.`
	if patch.Reset {
		long = short + `, so that the config applies again:
enable and disable, the keys of "tine servers set", headers and secrets.`
	}
	return &cobra.Command{
		Use:               verb + " SERVER",
		Short:             short,
		Long:              long,
		Example:           "  tine servers " + verb + " files",
		Args:              oneArg("the id of a server"),
		ValidArgsFunction: c.completeServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			if patch.Reset {
				return c.resetServer(cmd.Context(), args[0])
			}
			return c.patchServer(cmd.Context(), args[0], patch, switched)
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
	if err := c.list(list, c.serverTable(list.Servers), "no servers are configured; add one under servers: in the config"); err != nil {
		return err
	}
	if !c.flags.json && slices.ContainsFunc(list.Servers, func(s api.Server) bool { return s.Overridden }) {
		c.say("%s", c.ownAll("* changed at run time; `tine servers show SERVER` says what, `tine servers reset SERVER` goes back to the config"))
	}
	return nil
}

func (c *cli) serverTable(servers []api.Server) *table {
	return listing(servers, columns("SERVER", "STATE", "LATENCY", "BREAKER", "QUEUE", "CALLS", "SINCE", "LAST ERROR"), func(s api.Server) []cell {
		row := cells(s.ID, stateText(s), "", s.Breaker, strconv.Itoa(s.Queue), strconv.FormatInt(s.Calls, 10), c.age(s.Since), "")
		row[1].color, row[3].color = stateColor(s.State), breakerColor(s.Breaker)
		if s.Latency != nil {
			row[2].text = shortMillis(s.Latency.P50)
		}
		switch {
		case s.Reason != "":
			row[7] = cell{c.ownAll(api.WithWords(s.Reason, s.Words)), stateColor(s.State)}
		case s.LastError != nil:
			row[7].text = c.age(s.LastError.At) + " ago: " + errorText(s.LastError)
		}
		return row
	})
}

// errorText is a server's last error: its message, which is for operators, and its
// kind for others.
func errorText(e *api.LastError) string { return cmp.Or(e.Message, string(e.Kind)) }

// patchServer changes a server and prints the text that say makes of it.
func (c *cli) patchServer(ctx context.Context, id string, patch api.ServerPatch, say func(*api.Server) string) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	s, err := ask(ctx, g, func(ctx context.Context) (*api.Server, error) { return g.PatchServer(ctx, id, patch) })
	if err != nil {
		return c.unknownServer(ctx, g, id, err)
	}
	return c.answer(s, s.ID+": "+say(s))
}

// resetServer removes the run-time changes of a server, and prints them.
func (c *cli) resetServer(ctx context.Context, id string) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	was, err := askFor(ctx, g, g.Server, id)
	if err != nil {
		return c.unknownServer(ctx, g, id, err)
	}
	return c.patchServer(ctx, id, api.ServerPatch{Reset: true}, func(now *api.Server) string {
		if len(was.Overrides) == 0 {
			return "nothing was changed at run time; " + switched(now)
		}
		return "reset " + strings.Join(was.Overrides, ", ") + "; " + switched(now)
	})
}

// switched says whether a server is enabled, and whether that differs from the
// config.
func switched(s *api.Server) string {
	word := "disabled"
	if s.Enabled {
		word = "enabled"
	}
	others := slices.DeleteFunc(slices.Clone(s.Overrides), func(key string) bool { return key == "enabled" })
	if len(others) < len(s.Overrides) {
		word += ", unlike the config"
	} else {
		word += ", as the config says"
	}
	if len(others) > 0 {
		word += "; still changed at run time: " + strings.Join(others, ", ")
	}
	if s.Enabled && s.Reason != "" {
		word += "; " + s.State + ": " + api.WithWords(s.Reason, s.Words)
	}
	return word
}

// unknownServer adds similar names to the error for an unknown server.
func (c *cli) unknownServer(ctx context.Context, g *gateway, id string, err error) error {
	var ae *api.Error
	if !errors.As(err, &ae) || ae.Status != http.StatusNotFound {
		return err
	}
	list, lerr := ask(ctx, g, g.Servers)
	if lerr != nil {
		return err // the first error is reported
	}
	var ids []string
	for _, s := range list.Servers {
		if s.ID == id {
			return err // something else was not found
		}
		ids = append(ids, s.ID)
	}
	return usagef("unknown server %q%s; see tine servers", id, didYouMean(id, ids))
}

func stateText(s api.Server) string {
	text := s.State
	if s.Fetch != nil {
		text = s.Fetch.String()
	}
	if s.Overridden {
		text += "*"
	}
	return text
}

func stateColor(state string) string {
	switch state {
	case api.StateReady:
		return green
	case api.StateStarting, api.StateFetching:
		return yellow
	case api.StateFailed:
		return red
	case api.StateDisabled:
		return dim
	}
	return ""
}

func breakerColor(state string) string {
	switch state {
	case api.BreakerOpen:
		return red
	case api.BreakerHalfOpen:
		return yellow
	}
	return ""
}

// shortMillis is a time in three digits or so.
func shortMillis(ms float64) string {
	switch {
	case ms < 10:
		return strconv.FormatFloat(ms, 'f', 1, 64) + "ms"
	case ms < 1000:
		return strconv.FormatFloat(ms, 'f', 0, 64) + "ms"
	case ms < 100_000:
		return strconv.FormatFloat(ms/1000, 'f', 1, 64) + "s"
	}
	return strconv.FormatFloat(ms/1000, 'f', 0, 64) + "s"
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
