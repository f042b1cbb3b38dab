package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

// followEvery is how often --follow asks, and followBytes how much of each log
// it asks for: as long as a log is shorter, nothing of it can be missed.
const (
	followEvery = time.Second
	followBytes = 1 << 20
)

func newLogsCmd(c *cli) *cobra.Command {
	var (
		bytes  int64
		follow bool
	)
	cmd := &cobra.Command{
		Use:   "logs SERVER",
		Short: "Print the standard error of a server",
		Long: `Prints the end of the standard error of a server's instances, including the last
instances that failed. Only servers that Tine runs have a log.`,
		Example: `  tine logs files
  tine logs files --bytes 1000
  tine logs files --follow`,
		Args:              oneArg("the id of a server"),
		ValidArgsFunction: c.completeServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			if bytes < 1 {
				return usagef("--bytes wants a number above 0, got %d", bytes)
			}
			if follow && c.flags.json {
				return usagef("--follow prints text only; leave --json away")
			}
			return c.logs(cmd.Context(), args[0], bytes, follow)
		},
	}
	cmd.Flags().Int64Var(&bytes, "bytes", 64<<10, "print at most this many bytes of each instance")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new output until interrupted")
	return cmd
}

func (c *cli) logs(ctx context.Context, server string, bytes int64, follow bool) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	want := bytes
	if follow {
		want = max(want, followBytes)
	}
	fetch := func(ctx context.Context) (*api.LogList, error) { return g.Logs(ctx, server, want) }
	list, err := ask(ctx, g, fetch)
	if err != nil {
		return c.unknownServer(ctx, g, server, err)
	}
	if c.flags.json {
		return c.printJSON(list)
	}
	p := logPrinter{c: c, many: len(list.Instances) > 1}
	tails := map[string]*tail{}
	for _, e := range list.Instances {
		t := &tail{}
		tails[tailOf(e)] = t
		text := e.Text
		if follow {
			text, _ = t.next(e.Text)
		}
		p.print(e, lastBytes(text, bytes))
	}
	if !follow {
		if len(list.Instances) == 0 {
			c.say("server %q has no instance with a log", server)
		}
		p.finish()
		return nil
	}
	return c.follow(ctx, g, fetch, tails, &p)
}

// follow polls the logs and prints what is new. It waits for a gateway that is
// away, perhaps for a restart.
func (c *cli) follow(ctx context.Context, g *gateway, fetch func(context.Context) (*api.LogList, error), tails map[string]*tail, p *logPrinter) error {
	away := false
	for {
		select {
		case <-ctx.Done():
			p.finish()
			return nil // interrupting is how following ends
		case <-c.after(followEvery):
		}
		list, err := ask(ctx, g, fetch)
		var ae *api.Error
		switch {
		case ctx.Err() != nil:
			continue
		case errors.As(err, &ae) && !ae.Retryable:
			p.finish()
			return err
		case err != nil:
			if !away {
				p.finish()
				c.say("tine: %v; waiting for it", err)
			}
			away = true
			continue
		}
		away = false
		seen := map[string]*tail{}
		p.many = p.many || len(list.Instances) > 1
		for _, e := range list.Instances {
			t := tails[tailOf(e)]
			if t == nil && !e.Ended.IsZero() {
				t = tails[e.Instance] // it ran until now
				delete(tails, e.Instance)
			}
			if t == nil {
				t = &tail{}
			}
			seen[tailOf(e)] = t
			text, gap := t.next(e.Text)
			if gap {
				p.finish()
				c.say("tine: instance %s wrote too much at once; some of it is not shown", e.Instance)
			}
			p.print(e, text)
		}
		tails = seen // instances that are gone are forgotten
	}
}

// tailOf names the log of an instance. An ended instance may have the name of a
// running one.
func tailOf(e api.LogEntry) string {
	if e.Ended.IsZero() {
		return e.Instance
	}
	return e.Instance + " " + e.Ended.String()
}

// logPrinter prints pieces of several logs with the names of their instances.
type logPrinter struct {
	c    *cli
	many bool   // more than one instance was seen: name them
	last string // whose piece came last
	open bool   // the last piece did not end its line
}

func (p *logPrinter) print(e api.LogEntry, text string) {
	if text == "" {
		return
	}
	if (p.many || !e.Ended.IsZero()) && p.last != tailOf(e) {
		p.finish()
		name := e.Instance
		if e.Session != "" {
			name += " of session " + e.Session
		}
		if !e.Ended.IsZero() {
			name += ", which failed at " + e.Ended.Local().Format(time.DateTime)
		}
		fmt.Fprintln(p.c.stdout, p.c.paint(bold, "==> "+visible(oneLine(name), p.c.outTerminal)+" <=="))
	}
	p.last = tailOf(e)
	if p.c.color() {
		text = visibleLog(text, p.c.outTerminal)
	} else {
		text = visible(text, p.c.outTerminal)
	}
	fmt.Fprint(p.c.stdout, text)
	p.open = !strings.HasSuffix(text, "\n")
}

// finish ends a line that is still open.
func (p *logPrinter) finish() {
	if p.open {
		fmt.Fprintln(p.c.stdout)
		p.open = false
	}
}
