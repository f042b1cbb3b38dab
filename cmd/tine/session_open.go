package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// openOptions are the flags of tine session open.
type openOptions struct {
	api.NewSession
	labels    []string
	auto      []string
	instances []string
	templates []string
	count     int
	listed    bool // --count was given: a list is wanted, also of one
}

func newSessionOpenCmd(c *cli) *cobra.Command {
	var o openOptions
	cmd := &cobra.Command{
		Use:   "open",
		Short: "Open one or more sessions",
		Long: `Opens a session and prints its id on standard output. Its MCP endpoint, its token
and the next steps are printed on standard error. The token is valid only for this
session and is not shown again. --json prints everything on standard output.

The session starts with the servers of the config, or, with --from, with the state
of a snapshot. A server starts at its first use, or immediately with --eager. If
there is no room for another session, the command waits for it, at most as long
as --wait.

--count opens several sessions concurrently and prints their ids, one per line.
--json prints their tokens; "tine session token ID..." creates new ones later. When
one session can't be opened, the command opens no more; those already open stay
open.

--instances gives the session several instances of a server, each with its own
state: the first has the name of the server, the others are server~1, server~2.
--template sets the initial state of a server's instances: a snapshot, or a path
under template_roots.

--autosnapshot makes snapshots automatically, to rewind to: every=N makes one every
N calls, and before=TOOL one before each call of a tool, by its name in "tine tools"
or a pattern such as files__write_*. The gateway keeps the last eight, or keep=N.`,
		Example: `  tine session open
  tine session open --label run=7 --ttl 2h --idle 30m
  tine session open --from base --count 100 --label run=8
  tine session open --server memory --server files --eager
  tine session open --instances memory=4 --template memory=graph.jsonl
  tine session open --autosnapshot every=10 --autosnapshot before=files__write_file
  tine session open --json | jq -r .token`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.listed = cmd.Flags().Changed("count")
			if err := o.read(); err != nil {
				return err
			}
			return c.openSessions(cmd.Context(), o)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	f.StringVar(&o.From, "from", "", "start with this snapshot, by name or id")
	labelFlag(cmd, &o.labels, "label of the session, KEY=VALUE; repeatable")
	f.StringVar(&o.TTL, "ttl", "", "close the session after this long, such as 2h or 7d; 0 for never (default from the config)")
	f.StringVar(&o.Idle, "idle", "", "close the session when unused for this long; 0 for never (default from the config)")
	f.StringSliceVar(&o.Servers, "server", nil, "include only this server; repeatable (default those of the snapshot, or all)")
	f.BoolVar(&o.Eager, "eager", false, "start every server immediately")
	f.StringArrayVar(&o.instances, "instances", nil, "number of instances of a server, SERVER=N; repeatable")
	f.StringArrayVar(&o.templates, "template", nil, "initial state of a server, SERVER=SNAPSHOT or SERVER=PATH; repeatable")
	f.StringVar(&o.Wait, "wait", "", "wait at most this long for room (default from the config)")
	f.IntVar(&o.count, "count", 1, "number of sessions")
	f.StringArrayVar(&o.auto, "autosnapshot", nil, "make snapshots automatically: every=N, before=TOOL, keep=N; repeatable")
	c.completeFlag(cmd, "from", c.completeSnapshotFlag)
	c.completeFlag(cmd, "server", c.completeServerFlag)
	c.completeFlag(cmd, "instances", c.completeServerFlag)
	c.completeFlag(cmd, "template", c.completeServerFlag)
	c.completeFlag(cmd, "autosnapshot", cobra.FixedCompletions([]string{"every=", "before=", "keep="}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	return cmd
}

// read turns the flags into the request.
func (o *openOptions) read() (err error) {
	if o.count < 1 {
		return usagef("--count wants a number above 0, got %d", o.count)
	}
	if o.Labels, err = parseLabels(o.labels); err != nil {
		return err
	}
	if o.Members, err = parseMembers(o.instances, o.templates); err != nil {
		return err
	}
	if o.Autosnapshot, err = parseAutosnapshot(o.auto); err != nil {
		return err
	}
	return spanFlags(map[string]*string{"ttl": &o.TTL, "idle": &o.Idle, "wait": &o.Wait})
}

func parseAutosnapshot(given []string) (*api.Autosnapshot, error) {
	if len(given) == 0 {
		return nil, nil
	}
	var a api.Autosnapshot
	number := func(key, value string, into *int) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return usagef("--autosnapshot %s wants a number above 0, got %q", key, value)
		}
		*into = n
		return nil
	}
	for _, text := range given {
		key, value, _ := strings.Cut(text, "=")
		var err error
		switch {
		case key == "every":
			err = number(key, value, &a.Every)
		case key == "keep":
			err = number(key, value, &a.Keep)
		case key == "before" && value != "":
			a.Before = append(a.Before, strings.Split(value, ",")...)
		default:
			err = usagef("--autosnapshot wants every=N, before=TOOL or keep=N, got %q", text)
		}
		if err != nil {
			return nil, err
		}
	}
	if a.Every == 0 && a.Before == nil {
		return nil, usagef("--autosnapshot keep=%d does not say when to make one; add every=N or before=TOOL", a.Keep)
	}
	return &a, nil
}

func (c *cli) openSessions(ctx context.Context, o openOptions) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	if o.From != "" {
		snap, err := findSnapshot(ctx, g, o.From)
		if err != nil {
			return err
		}
		o.From = snap.ID // the same for all, even if its name changes meanwhile
	}
	begun := c.now()
	made := make([]*api.OpenedSession, o.count)
	bar := c.counting("opened", o.count)
	err = inParallel(ctx, o.count, func(i int) (err error) {
		made[i], err = once(ctx, c, func(key client.CreateOption) (*api.OpenedSession, error) {
			return g.OpenSession(ctx, o.NewSession, key)
		})
		bar.add(1)
		return err
	})
	bar.stop()
	opened := []api.OpenedSession{}
	for _, s := range made {
		if s != nil {
			opened = append(opened, *s)
		}
	}
	if err != nil && o.count > 1 {
		err = fmt.Errorf("opened %d of %s: %w", len(opened), count(o.count, "session"), err)
	}
	err = g.explain(mendSession(err))
	if perr := c.printOpened(opened, o.listed, c.now().Sub(begun), err); err == nil {
		err = perr
	}
	return err
}

// printOpened prints the opened sessions, and the error if not all were opened.
func (c *cli) printOpened(opened []api.OpenedSession, listed bool, took time.Duration, failed error) error {
	switch {
	case c.flags.json && listed:
		out := map[string]any{"sessions": opened}
		if failed != nil {
			out["error"] = c.errorObject(failed)
		}
		return c.printJSON(out)
	case len(opened) == 0:
		return nil
	case c.flags.json:
		return c.printJSON(opened[0])
	}
	for _, s := range opened {
		fmt.Fprintln(c.stdout, s.ID)
	}
	first := opened[0]
	if len(opened) > 1 {
		c.say("\n%s opened in %s. For their tokens, each for one session alone: %s", count(len(opened), "session"), took.Round(time.Millisecond), c.own("tine session token ID..."))
	} else {
		c.say("\n  url    %s\n  token  %s (for this session alone; not shown again)", first.URL, first.Token)
		if until := c.lasts(first.Session); until != "" {
			c.say("  lasts  %s", until)
		}
	}
	c.say("\nNext:\n\n  %s\n  %s", c.own("tine tools --session "+first.ID), c.own("tine session fork "+first.ID+" --count 3"))
	return nil
}

// lasts says when a session closes by itself; empty for never.
func (c *cli) lasts(s api.Session) string {
	var until []string
	if !s.Expires.IsZero() {
		until = append(until, "until "+s.Expires.In(c.now().Location()).Format("2006-01-02 15:04"))
	}
	if s.Idle != "" {
		idle := s.Idle
		d, err := time.ParseDuration(idle)
		if err == nil {
			idle = spanText(d)
		}
		text := "until it is unused for " + idle
		if s.Kind == api.SessionClient {
			text = "until its client leaves or is silent for " + idle
			if d > api.ClientAway {
				text += "; its programs end after " + spanText(api.ClientAway)
			}
		}
		until = append(until, text)
	}
	return strings.Join(until, ", or ")
}

// spanText is a length of time without the units that are zero at its end.
func spanText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// createTries and createPause say how often and when a request without an answer is
// repeated.
const (
	createTries = 5
	createPause = time.Second
)

// once creates something at the gateway. If the connection breaks before the answer
// it repeats the request with the same key, so that nothing is created twice.
func once[T any](ctx context.Context, c *cli, create func(client.CreateOption) (T, error)) (T, error) {
	key := client.Once(rand.Text())
	for try, unsure := 1, false; ; try++ {
		v, err := create(key)
		unsure = unsure || brokenOff(err)
		if err == nil || try == createTries || !unsure || !(brokenOff(err) || pending(err) || errors.Is(err, client.ErrNoGateway)) {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, ctx.Err()
		case <-c.after(createPause):
		}
	}
}

// brokenOff reports whether a request may have been carried out although there
// was no answer.
func brokenOff(err error) bool {
	var (
		ae *api.Error
		op *net.OpError
	)
	if err == nil || errors.As(err, &ae) || errors.Is(err, client.ErrNoGateway) || errors.Is(err, context.Canceled) {
		return false
	}
	return errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// pending reports whether the first request with a key is still running.
func pending(err error) bool {
	var ae *api.Error
	return errors.As(err, &ae) && ae.Status == http.StatusConflict && ae.Retryable
}

// parseMembers reads --instances, SERVER=N, and --template, SERVER=TEMPLATE, the
// initial state of a server. A template that is an object or a list is JSON;
// anything else is text.
func parseMembers(instances, templates []string) (map[string]api.NewMember, error) {
	if len(instances)+len(templates) == 0 {
		return nil, nil
	}
	members := make(map[string]api.NewMember)
	for _, text := range instances {
		server, number, _ := strings.Cut(text, "=")
		n, err := strconv.Atoi(number)
		m := members[server]
		switch {
		case server == "" || err != nil || n < 1:
			return nil, usagef("--instances wants SERVER=N with a number above 0, got %q", text)
		case m.Instances != 0:
			return nil, usagef("--instances has server %q twice", server)
		}
		m.Instances = n
		members[server] = m
	}
	for _, text := range templates {
		server, template, _ := strings.Cut(text, "=")
		m := members[server]
		switch {
		case server == "" || template == "":
			return nil, usagef("--template wants SERVER=TEMPLATE, the name of a snapshot or a path under template_roots, got %q", text)
		case m.Template != nil:
			return nil, usagef("--template has server %q twice", server)
		}
		if raw := json.RawMessage(template); strings.ContainsAny(template[:1], "{[") && json.Valid(raw) {
			m.Template = raw
		} else if m.Template, _ = json.Marshal(template); m.Template == nil {
			return nil, usagef("--template %s can't be sent", server)
		}
		members[server] = m
	}
	return members, nil
}
