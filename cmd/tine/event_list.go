package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// How many of the last events come first, unless --limit says another number.
const (
	listedEvents   = 50
	followedEvents = 10
	mostLastEvents = 1000
)

func newEventsCmd(c *cli) *cobra.Command {
	var f client.EventFilter
	var following bool
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List or follow what happens: sessions, calls, runs, servers",
		Long: `Lists what has happened in the gateway, the newest last: sessions that were opened,
forked, snapshotted, rewound, damaged or closed, calls that have ended, and the
events of runs. --follow also tells how servers are doing when that changes, which
is not stored.

The types are session.opened, session.forked, session.snapshot, session.rewound,
session.damaged, session.closed, call, server, run.state, run.text, run.tool,
run.usage and run.stderr. --type takes a type, or session or run for all of a group.

Every event has an id, which --json shows: --after continues behind it, and "start"
begins with the oldest event that is kept. If events are no longer kept, a line with
the type gap says so.

--follow prints events as they come, until it is interrupted. If the gateway
restarts, the command reconnects and continues where it stopped.

A caller that is neither viewer nor operator sees only its own sessions, runs and
calls.`,
		Example: `  tine events
  tine events --follow
  tine events --follow --type session --type run.state
  tine events --session ses_0123456789ab --after start
  tine events --follow --json | jq -c 'select(.type == "session.damaged")'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case cmd.Flags().Changed("limit") && (f.Last < 1 || f.Last > mostLastEvents):
				return usagef("--limit wants a number from 1 to %d, got %d", mostLastEvents, f.Last)
			case f.After != "" && f.Last > 0:
				return usagef("--after says where to begin, and --limit too; leave one of them away")
			}
			if f.Session != "" {
				g, err := c.connect()
				if err != nil {
					return err
				}
				if f.Session, err = findSession(cmd.Context(), g, f.Session); err != nil {
					return err
				}
			}
			f.Once = !following
			if f.After == "" {
				f.Last = cmp.Or(f.Last, map[bool]int{true: followedEvents, false: listedEvents}[following])
			}
			return c.listEvents(cmd.Context(), f)
		},
	}
	fl := cmd.Flags()
	fl.BoolVarP(&following, "follow", "f", false, "print events as they come, until interrupted")
	fl.StringSliceVar(&f.Types, "type", nil, "only events of this type or group; repeatable")
	fl.StringVar(&f.Session, "session", "", "only events of this session and calls in it, by its id, a prefix of it, or its name")
	fl.StringVar(&f.Run, "run", "", "only events of this run")
	fl.StringVar(&f.Agent, "agent", "", "only events of runs of this agent")
	fl.StringVar(&f.After, "after", "", "continue behind the event with this id, or \"start\"")
	fl.IntVar(&f.Last, "limit", 0, fmt.Sprintf("begin with at most this many of the last events (default %d; %d with --follow)", listedEvents, followedEvents))
	c.completeFlag(cmd, "session", c.completeSessionFlag)
	c.completeFlag(cmd, "type", cobra.FixedCompletions(append([]cobra.Completion{"session", "run"}, api.EventTypes...), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// listEvents prints the events that there are, or with a filter that is not Once also
// those that come.
func (c *cli) listEvents(ctx context.Context, filter client.EventFilter) error {
	f := client.EventFollower{EventFilter: filter}
	none := true
	err := follow(ctx, filter.Once, func(ctx context.Context, each func(api.Event) error) error {
		return c.keepRunning(ctx, func(g *gateway) (came bool, err error) {
			err = f.Run(ctx, g.Client, func(e api.Event) error {
				came, none = true, false
				return each(e)
			})
			return came, err
		})
	}, growing(c, listing(nil, []column{{"TIME", whole}, {"TYPE", whole}, {"SESSION", whole}, {"WHAT", 0}}, c.eventRow), c.eventRow))
	if err == nil && none && filter.Once && !c.flags.json {
		c.say("no matching events")
	}
	return err
}

func (c *cli) eventRow(e api.Event) []cell {
	at := cell{}
	if !e.At.IsZero() {
		at = cell{c.clock(e.At), dim}
	}
	what := cell{text: eventText(e)}
	switch {
	case e.Type == api.EventGap, e.Type == api.EventSessionDamaged, e.Type == api.EventServer && e.State != api.HealthWell,
		e.State == api.RunFailed, e.Call != nil && e.Call.Outcome != api.OutcomeOK:
		what.color = red
	case e.Withheld:
		what.color = dim
	}
	return []cell{at, plain(e.Type), plain(e.Session), what}
}

// eventText is what an event says, in one line.
func eventText(e api.Event) string {
	var parts []string
	add := func(label, text string) {
		if text = oneLine(text); text != "" {
			parts = append(parts, strings.TrimSpace(label+" "+text))
		}
	}
	if call := e.Call; call != nil {
		add("", call.ID)
		add("", call.Server)
		add("", callName(*call))
		if add("", call.Outcome); call.Error != "" {
			add("·", call.Error)
		}
		return strings.Join(parts, " ")
	}
	switch e.Lost {
	case api.LostAll:
		return "the id is not known to this gateway; what happened before now is not shown"
	case api.LostSessions:
		return "some events of sessions and runs are no longer kept"
	case api.LostCalls:
		return "some calls are no longer kept"
	case api.LostServers:
		return "some changes of servers were missed"
	}
	add("", e.Run)
	add("", e.Agent)
	add("", e.Server)
	add("", e.State)
	add("kept", e.Kept)
	switch e.Type {
	case api.EventSessionOpened:
		add("from", cmp.Or(e.Parent, e.Snapshot))
	case api.EventSessionRewound:
		add("to", e.Snapshot)
	default:
		add("", e.Snapshot)
	}
	if children := slices.Clone(e.Children); len(children) > 3 {
		add("into", fmt.Sprintf("%s and %d more", strings.Join(children[:3], " "), len(children)-3))
	} else {
		add("into", strings.Join(children, " "))
	}
	add("·", e.Reason)
	if e.Withheld {
		add("", "(withheld)")
	}
	add("", compactJSON(e.Data))
	return strings.Join(parts, " ")
}
