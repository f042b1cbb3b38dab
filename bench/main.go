// Command bench measures what Tine costs in front of an MCP server, beside what
// the server costs alone and what other things in its place would cost.
//
// One run starts an echo server made with the official SDK, a reverse proxy, a
// minimal body-reading relay and Tine, each a process of its own on loopback,
// and calls them in rounds: every round visits every row, so that a machine that
// is busy for a while slows all of them and the ratios stay. Every answer is
// checked against its call. Then sessions are opened, forked and filled, over the
// control API. README.md beside this file says what each row means.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == roleCommand {
		os.Exit(roleMain(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var code int
	if len(os.Args) > 1 && os.Args[1] == soakCommand {
		code = soakMain(ctx, os.Args[2:], os.Stdout, os.Stderr)
	} else {
		code = cli(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	stop()
	os.Exit(code)
}

// settings is what the flags say.
type settings struct {
	Duration time.Duration // of one measured cell
	Rounds   int
	Callers  []int
	Payload  int // bytes of text in one call
	MaxCalls int // in one cell

	// Of the rows about sessions.
	Sessions  int   // many of them
	Depth     int   // forks from the first session of a line to the last
	Workspace int64 // MB in the larger one
	Full      bool  // also what takes long or much

	Only  []string
	Tine  string
	JSON  bool
	Check bool
}

// cli is the program: it returns the exit code. A run that could not be made, or
// in which a call was answered wrongly, is 1; missed aims are 1 only with --check.
func cli(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 2
	}
	rep, err := run(ctx, s, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	if s.JSON {
		err = writeJSON(stdout, rep)
	} else {
		err = writeTable(stdout, rep)
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench: write the report:", err)
		return 1
	}
	if rep.failed() || s.Check && !rep.met() {
		return 1
	}
	return 0
}

func parseFlags(args []string, stderr io.Writer) (settings, error) {
	var s settings
	var callers, only string
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.DurationVar(&s.Duration, "duration", 250*time.Millisecond, "how long one cell is measured in one round")
	fs.IntVar(&s.Rounds, "rounds", 10, "how often every cell is visited")
	fs.StringVar(&callers, "callers", "1,16", "numbers of concurrent callers, comma-separated")
	fs.IntVar(&s.Payload, "payload", 128, "bytes of text in one call")
	fs.IntVar(&s.MaxCalls, "max-calls", 100_000, "calls after which a cell ends early")
	fs.IntVar(&s.Sessions, "sessions", 1000, "how many sessions are many")
	fs.IntVar(&s.Depth, "depth", 100, "how many forks are deep")
	fs.Int64Var(&s.Workspace, "workspace", 1000, "MB in the larger workspace")
	fs.BoolVar(&s.Full, "full", false, "measure also what takes long or much memory: 150 sandboxes with Node at once, and a server from PyPI")
	fs.StringVar(&only, "only", "", "rows to run, comma-separated: a group (2025-11-25), a row (stdio/direct) or a glob (*/tine*)")
	fs.StringVar(&s.Tine, "tine", "bin/tine", "the gateway's binary; its rows are left out when there is none")
	fs.BoolVar(&s.JSON, "json", false, "print JSON instead of a table")
	fs.BoolVar(&s.Check, "check", false, "exit 1 when an aim is missed or can't be judged")
	if err := fs.Parse(args); err != nil {
		return s, err
	}
	if fs.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q; only flags are taken", fs.Arg(0))
	}
	for c := range strings.SplitSeq(callers, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(c))
		if err != nil || n < 1 || n > 1024 {
			return s, fmt.Errorf("--callers: %q is not a number from 1 to 1024", c)
		}
		s.Callers = append(s.Callers, n)
	}
	for o := range strings.SplitSeq(only, ",") {
		if o = strings.TrimSpace(o); o != "" {
			s.Only = append(s.Only, o)
		}
	}
	switch {
	case s.Duration <= 0 || s.Duration > time.Minute:
		return s, fmt.Errorf("--duration: %v is not between 0 and 1m", s.Duration)
	case s.Rounds < 1 || s.Rounds > 1000:
		return s, fmt.Errorf("--rounds: %d is not from 1 to 1000", s.Rounds)
	case s.Payload < minPayload || s.Payload > 8<<20:
		return s, fmt.Errorf("--payload: %d is not from %d to %d bytes", s.Payload, minPayload, 8<<20)
	case s.MaxCalls < 1:
		return s, fmt.Errorf("--max-calls: %d is less than 1", s.MaxCalls)
	case s.Sessions < 1 || s.Sessions > 10_000:
		return s, fmt.Errorf("--sessions: %d is not from 1 to 10000", s.Sessions)
	case s.Depth < 2 || s.Depth > 10_000:
		return s, fmt.Errorf("--depth: %d is not from 2 to 10000", s.Depth)
	case s.Workspace < 1 || s.Workspace > 100_000:
		return s, fmt.Errorf("--workspace: %d is not from 1 to 100000 MB", s.Workspace)
	}
	return s, nil
}
