package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// How many calls are listed, and how many come first with --follow, unless
// --limit says another number.
const (
	listedCalls   = 50
	followedCalls = 10
	callsPage     = 1000 // the most that a gateway gives at once
)

// callsOptions are the flags of tine calls.
type callsOptions struct {
	client.CallQuery
	since  string
	follow bool
}

func newCallsCmd(c *cli) *cobra.Command {
	var o callsOptions
	cmd := &cobra.Command{
		Use:   "calls [ID]",
		Short: "List or follow the calls in the journal, or show one call",
		Long: `Lists the calls in the gateway's journal, the newest last: time, id, server and
tool, outcome, duration in milliseconds, principal, and the arguments on one line.
The outcome is ok; cancelled if the client cancelled the call or disconnected, or
the gateway stopped before the call ended; or the kind of failure: tool,
infrastructure, timeout, refused, invalid or lost. A failed call shows its error
before its arguments.

With an id, the command shows that call with its full arguments and result.
Values that look like secrets are masked. Calls of a server with journal: meta
have no arguments or results; those of a server with journal: off are not listed.

Outbound connections of a sandboxed server, allowed or refused, are listed as
tine/network HOST:PORT with the bytes sent and received.

--follow prints calls as they end, until it is interrupted. If the gateway
restarts, the command reconnects and continues where it stopped.

A caller that is neither viewer nor operator sees only its own calls.`,
		Example: `  tine calls
  tine calls --server files --failed --since 1h
  tine calls --follow
  tine calls call_00000000002a
  tine calls --follow --json | jq -c 'select(.ms > 1000)'
  tine calls --limit 1000 --json | jq -r '.calls[] | [.server, .name] | @tsv' | sort | uniq -c`,
		Args:              upToOneArg,
		ValidArgsFunction: c.completeCallID,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				var given []string
				for _, name := range []string{"follow", "server", "session", "run", "principal", "failed", "since", "limit"} {
					if cmd.Flags().Changed(name) {
						given = append(given, "--"+name)
					}
				}
				if len(given) > 0 {
					return usagef("calls %s shows one call, and %s choose among many; leave one of them away", args[0], strings.Join(given, ", "))
				}
				return c.showCall(cmd.Context(), args[0])
			}
			if cmd.Flags().Changed("limit") && o.Limit < 1 {
				return usagef("--limit wants a number above 0, got %d", o.Limit)
			}
			if o.since != "" {
				var err error
				if o.Since, err = c.since(o.since); err != nil {
					return err
				}
			}
			if o.Session != "" {
				g, err := c.connect()
				if err != nil {
					return err
				}
				if o.Session, err = findSession(cmd.Context(), g, o.Session); err != nil {
					return err
				}
			}
			if o.follow {
				if o.Limit > callsPage {
					return usagef("--limit of --follow is at most %d, got %d", callsPage, o.Limit)
				}
				if o.Limit == 0 {
					o.Limit = followedCalls
				}
				return c.followCalls(cmd.Context(), o.CallQuery)
			}
			if o.Limit == 0 {
				o.Limit = listedCalls
			}
			return c.listCalls(cmd.Context(), o.CallQuery)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "print calls as they end, until interrupted")
	f.StringVar(&o.Server, "server", "", "only calls of this server")
	f.StringVar(&o.Session, "session", "", "only calls in this session, by its id, a prefix of it, or its name")
	f.StringVar(&o.Run, "run", "", "only calls that were made with a token of this run")
	f.StringVar(&o.Principal, "principal", "", "only calls of this principal")
	f.BoolVar(&o.Failed, "failed", false, "only calls that failed")
	f.StringVar(&o.since, "since", "", "only calls since this time: an age (90m, 1h, 7d), or a time like 2026-11-15T12:00:00Z")
	f.IntVar(&o.Limit, "limit", 0, fmt.Sprintf("at most this many of the last calls (default %d; %d with --follow)", listedCalls, followedCalls))
	c.completeFlag(cmd, "server", c.completeServerFlag)
	c.completeFlag(cmd, "session", c.completeSessionFlag)
	c.completeFlag(cmd, "run", cobra.NoFileCompletions)
	return cmd
}

func (c *cli) listCalls(ctx context.Context, q client.CallQuery) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	var all api.CallList
	for want := q.Limit; ; {
		q.Limit = min(want-len(all.Calls), callsPage)
		list, err := askFor(ctx, g, g.Calls, q)
		if err != nil {
			return err
		}
		all.Calls = append(all.Calls, list.Calls...)
		all.Next = list.Next
		q.Before = list.Next
		if list.Next == "" || len(list.Calls) == 0 || len(all.Calls) >= want {
			break
		}
	}
	if all.Calls == nil {
		all.Calls = []api.Call{}
	}
	newestLast := slices.Clone(all.Calls)
	slices.Reverse(newestLast)
	none := "no matching calls"
	if len(all.Calls) == 0 && q.Server != "" {
		if _, err := askFor(ctx, g, g.Server, q.Server); err != nil {
			none += "; " + c.unknownServer(ctx, g, q.Server, err).Error()
		}
	}
	return c.list(all, c.callTable(newestLast), none)
}

func (c *cli) callTable(calls []api.Call) *table {
	columns := []column{{"TIME", whole}, {"ID", whole}, {"SERVER", 0}, {"NAME", 0}, {"OUTCOME", 0}, {"MS", 0}, {"WHO", 0}, {"ARGUMENTS", 0}}
	return listing(calls, columns, c.callRow)
}

func (c *cli) callRow(call api.Call) []cell {
	outcome, color := call.Outcome, ""
	if outcome != api.OutcomeOK {
		color = red
	}
	last := cell{text: compactJSON(call.Arguments)}
	if call.Withheld {
		last = cell{"(withheld)", dim}
	}
	if call.Error != "" {
		last = cell{strings.TrimSuffix(oneLine(call.Error)+" · "+last.text, " · "), color}
	}
	return []cell{
		{c.clock(call.At), dim}, plain(call.ID), plain(call.Server), plain(callName(call)),
		{outcome, color}, plain(millis(call.Duration)), plain(call.Principal), last,
	}
}

// callName is a tool by its name, and anything else by its method too.
func callName(call api.Call) string {
	if call.Method == "tools/call" {
		return call.Name
	}
	return strings.TrimSpace(call.Method + " " + call.Name)
}

// clock is a time of today, or a day and a time.
func (c *cli) clock(t time.Time) string {
	now := c.now()
	t = t.In(now.Location())
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format("Jan 02 15:04")
}

func millis(ms float64) string {
	if ms < 100 {
		return strconv.FormatFloat(ms, 'f', 1, 64)
	}
	return strconv.FormatFloat(ms, 'f', 0, 64)
}

// compactJSON is raw JSON in one line, its strings untouched.
func compactJSON(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return string(raw)
	}
	return b.String()
}

func (c *cli) showCall(ctx context.Context, id string) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	call, err := askFor(ctx, g, g.JournalCall, id)
	if err != nil {
		return unknownCall(id, err)
	}
	if c.flags.json {
		return c.printJSON(call)
	}
	t := c.thing()
	t.line("call", call.ID)
	t.line("time", fmt.Sprintf("%s (%s ago)", call.At.Format(time.RFC3339Nano), c.age(call.At)))
	t.line("server", call.Server)
	t.line("method", call.Method)
	t.line("name", call.Name)
	color := green
	if call.Outcome != api.OutcomeOK {
		color = red
	}
	t.painted("outcome", call.Outcome, color)
	t.line("error", call.Error)
	t.line("took", millis(call.Duration)+" ms")
	t.line("who", call.Principal)
	t.line("session", call.Session)
	t.line("run", call.Run)
	t.line("trace", call.Trace)
	t.line("journal", call.Journal)
	if call.Withheld {
		t.line("contents", "withheld; only the caller and operators may see them")
	}
	t.print()
	for _, part := range []struct {
		name string
		raw  json.RawMessage
	}{{"arguments", call.Arguments}, {"result", call.Result}} {
		if len(part.raw) > 0 {
			fmt.Fprintf(c.stdout, "\n%s\n%s\n", c.paint(bold, part.name), visible(indent(part.raw, ""), c.outTerminal))
		}
	}
	return nil
}

// unknownCall says what may be wrong with an id that the gateway does not know.
func unknownCall(id string, err error) error {
	var ae *api.Error
	if !errors.As(err, &ae) || ae.Status != http.StatusNotFound || ae.Kind != api.KindInvalid {
		return err // no journal is another matter
	}
	return usagef("unknown call %q: it is not in the journal, or no longer; see tine calls", id)
}
