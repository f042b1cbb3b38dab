package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
)

func (c *cli) showServer(ctx context.Context, id string) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	s, err := askFor(ctx, g, g.Server, id)
	if err != nil {
		return c.unknownServer(ctx, g, id, err)
	}
	if c.flags.json {
		return c.printJSON(s)
	}
	t := c.thing()
	line := func(name, value string) { t.line(name, c.ownAll(value)) }
	line("server", s.ID)
	line("title", s.Title)
	t.painted("state", stateText(*s), stateColor(s.State))
	line("reason", api.WithWords(s.Reason, s.Words))
	line("since", c.moment(s.Since))
	if s.Overridden {
		what := "changed at run time"
		if len(s.Overrides) > 0 {
			what = strings.Join(s.Overrides, ", ") + " " + what
		}
		line("overridden", what+"; `tine servers reset "+s.ID+"` goes back to the config")
	}
	line("enabled", strconv.FormatBool(s.Enabled))
	line("driver", s.Driver)
	line("scope", s.Scope)
	line("target", s.Target)
	line("protocol", s.Protocol)
	line("implementation", oneLine(s.ServerName+" "+s.ServerVer))
	line("instances", strconv.Itoa(s.Instances))
	line("restarts", strconv.Itoa(s.Restarts))
	line("calls", fmt.Sprintf("%d, %d failed, %d running, %d waiting", s.Calls, s.Failures, s.InFlight, s.Queue))
	if l := s.Latency; l != nil {
		line("latency", fmt.Sprintf("median %s, 95%% within %s, of the last %d calls", shortMillis(l.P50), shortMillis(l.P95), l.Count))
	}
	t.painted("breaker", s.Breaker, breakerColor(s.Breaker))
	if e := s.LastError; e != nil {
		line("last error", strings.TrimSuffix(fmt.Sprintf("%s, %s: %s", c.moment(e.At), e.Kind, e.Message), ": "))
	}
	if l := s.Login; l != nil {
		text := loginText(l)
		if l.LoggedIn && !l.Expires.IsZero() {
			text += "; renewed before " + l.Expires.Format(time.RFC3339)
		}
		if !l.LoggedIn {
			text += "; `tine login " + s.ID + "` logs in"
		}
		line("login", text)
	}
	if p := s.Policy; p != nil {
		for _, l := range policyLines(p) {
			line(l[0], l[1])
		}
	}
	t.print()
	return nil
}

// policyLines describes the policy for the calls of a server.
func policyLines(p *api.Policy) [][2]string {
	var lines [][2]string
	add := func(name, format string, args ...any) {
		lines = append(lines, [2]string{name, fmt.Sprintf(format, args...)})
	}
	add("timeout", "%s a call, %s with progress; %s to connect", p.Timeout, p.MaxTimeout, p.ConnectTimeout)
	switch {
	case p.Retry <= 1:
		add("retry", "none")
	default:
		add("retry", "%d attempts", p.Retry)
	}
	if p.Breaker > 0 {
		add("breaker policy", "opens after %d failures in a row, for %s", p.Breaker, p.BreakerOpen)
	} else {
		add("breaker policy", "none")
	}
	if p.Rate > 0 {
		add("rate", "%s calls a second, %d at once", strconv.FormatFloat(p.Rate, 'f', -1, 64), p.Burst)
	}
	if p.Concurrency > 0 {
		add("concurrency", "%d calls", p.Concurrency)
	}
	if p.Rate > 0 || p.Concurrency > 0 {
		add("queue", "%d may wait, %s at most", p.Queue, p.QueueWait)
	}
	cache := []string{}
	if p.CacheLists != "" {
		cache = append(cache, "lists for "+p.CacheLists)
	}
	if p.CacheResults != "" {
		what := "results of read-only tools for " + p.CacheResults
		if len(p.CacheTools) > 0 {
			what += " (" + strings.Join(p.CacheTools, ", ") + ")"
		}
		cache = append(cache, what)
	}
	if len(cache) > 0 {
		add("cache", "%s", strings.Join(cache, ", "))
	}
	if p.Journal != "" {
		add("journal", "%s", p.Journal)
	}
	return lines
}
