package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

func newSessionExportCmd(c *cli) *cobra.Command {
	var out string
	var many manyOptions
	cmd := &cobra.Command{
		Use:   "export ID|SNAPSHOT",
		Short: "Export the trajectory of a session, or a snapshot as a file",
		Long: `For a session, open or closed, the command writes its trajectory as JSON lines,
from its first ancestor on: every call with arguments, result, outcome and time,
and every fork, snapshot and rewind. The trajectory goes to standard output, or to
the file that --out names.

With --label, and without an id, it writes the trajectories of all your sessions with
these labels, one after the other and the oldest session first. In each line "of" is
the session whose trajectory it is, and the last line has the type "end": without it the
export is not complete. --closed adds closed sessions.

For a snapshot, by its name or id, it writes one file that "tine session import"
reads, on this gateway or another. The file is NAME.tine unless --out names another;
--out - is standard output.

Exports are neither truncated nor masked, and may contain secrets. Files are
created with access for their owner only, and existing files are never overwritten.
The name of a snapshot takes precedence over the name or id prefix of a session.

` + sessionIDs,
		Example: `  tine session export 3f9a | jq -c 'select(.type == "call") | [.server, .name, .outcome]'
  tine session export 3f9a -o run7.jsonl
  tine session export --label run=7 --closed -o run7.jsonl
  tine session export base
  tine session export base -o - | ssh other tine session import - --name base`,
		Args:              upToOneArg,
		ValidArgsFunction: c.completeExport,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch chosen := len(many.labels) > 0; {
			case len(args) == 1 && (chosen || many.closed || many.owner != ""):
				return usagef("--label, --closed and --owner choose sessions; leave out %s, or them", args[0])
			case len(args) == 1:
				return c.export(cmd.Context(), args[0], out)
			case chosen:
				return c.exportMany(cmd.Context(), many, out)
			}
			return usagef("session export wants the id of a session, the name of a snapshot, or --label; see tine session export --help")
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "out", "o", "", "write to this file; - for standard output")
	labelFlag(cmd, &many.labels, "export the sessions with this label, KEY=VALUE; repeatable")
	f.BoolVar(&many.closed, "closed", false, "with --label: closed sessions too")
	f.StringVar(&many.owner, "owner", "", "with --label: sessions of this principal; for operators")
	return cmd
}

// manyOptions choose the sessions of an export.
type manyOptions struct {
	labels []string
	closed bool
	owner  string
}

func (c *cli) exportMany(ctx context.Context, o manyOptions, out string) error {
	labels, err := parseLabels(o.labels)
	if err != nil {
		return err
	}
	g, err := c.connect()
	if err != nil {
		return err
	}
	sessions := 0
	write := func(w io.Writer) error {
		return writeSteps(g.Trajectories(ctx, client.SessionQuery{Labels: labels, Closed: o.closed, Owner: o.owner}), w, func(s *api.Step) {
			if s.Type == api.StepEnd && s.Sessions != nil {
				sessions = *s.Sessions
			}
		})
	}
	if out == "" || out == "-" {
		buf := bufio.NewWriter(c.stdout)
		err = errors.Join(write(buf), buf.Flush())
		if err == nil {
			c.say("%s%s", count(sessions, "session"), c.onlyClosed(ctx, g, sessions, labels, o))
		}
		return g.explain(mendSession(err))
	}
	n, err := c.writeNew(out, write)
	if err != nil {
		return g.explain(mendSession(err))
	}
	return c.printExported(exported{File: out, Bytes: n, Sessions: sessions}, "trajectories of "+count(sessions, "session")+c.onlyClosed(ctx, g, sessions, labels, o))
}

// onlyClosed says of an export without a session that closed ones match.
func (c *cli) onlyClosed(ctx context.Context, g *gateway, sessions int, labels map[string]string, o manyOptions) string {
	if sessions > 0 || o.closed {
		return ""
	}
	for _, err := range g.AllSessions(ctx, client.SessionQuery{Labels: labels, Closed: true, Owner: o.owner}) {
		if err != nil {
			break // the export is complete without it
		}
		return "; closed ones match: add --closed"
	}
	return ""
}

func (c *cli) export(ctx context.Context, ref, out string) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	snap, session, err := findExport(ctx, g, ref)
	switch {
	case err != nil:
		return err
	case snap != nil:
		return c.exportSnapshot(ctx, g, snap, out)
	}
	return c.exportSession(ctx, g, session, out)
}

// findExport finds the snapshot or session of a reference.
func findExport(ctx context.Context, g *gateway, ref string) (snap *api.Snapshot, session string, err error) {
	if strings.HasPrefix(ref, sessionPrefix) {
		session, err = findSession(ctx, g, ref)
		return nil, session, err
	}
	snap, err = findSnapshot(ctx, g, ref)
	var use *usageError
	if !errors.As(err, &use) {
		return snap, "", err
	}
	session, serr := findSession(ctx, g, ref)
	switch {
	case !errors.As(serr, &use):
		return nil, session, serr
	case !hexStart.MatchString(ref):
		return nil, "", err
	}
	return nil, "", usagef("%w; no snapshot is named so either", serr)
}

// exported is what --json prints of a file that was written.
type exported struct {
	File     string `json:"file"`
	Bytes    int64  `json:"bytes"`
	Session  string `json:"session,omitempty"`
	Sessions int    `json:"sessions,omitempty"`
	Snapshot string `json:"snapshot,omitempty"`
}

func (c *cli) exportSession(ctx context.Context, g *gateway, id, out string) error {
	if out == "" || out == "-" {
		// run reports a failed write, and nothing is gained by going on.
		buf := bufio.NewWriter(c.stdout)
		err := errors.Join(writeTrajectory(ctx, g, id, buf), buf.Flush())
		return g.explain(mendSession(err))
	}
	n, err := c.writeNew(out, func(w io.Writer) error { return writeTrajectory(ctx, g, id, w) })
	if err != nil {
		return g.explain(mendSession(err))
	}
	return c.printExported(exported{File: out, Bytes: n, Session: id}, "trajectory")
}

// writeTrajectory writes each step as it comes.
func writeTrajectory(ctx context.Context, g *gateway, id string, w io.Writer) error {
	return writeSteps(g.Trajectory(ctx, id), w, func(*api.Step) {})
}

func writeSteps(steps iter.Seq2[api.Step, error], w io.Writer, seen func(*api.Step)) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for step, err := range steps {
		if err != nil {
			return err
		}
		seen(&step)
		if err := enc.Encode(step); err != nil {
			return fmt.Errorf("write the trajectory: %w", err)
		}
	}
	return nil
}

func (c *cli) exportSnapshot(ctx context.Context, g *gateway, snap *api.Snapshot, out string) error {
	if out == "-" && c.outTerminal {
		return usagef("a snapshot is no text for a terminal; name a file with --out, or send standard output somewhere")
	}
	file, err := g.ExportSnapshot(ctx, snap.ID)
	if err != nil {
		return g.explain(mendSnapshot(err))
	}
	defer file.Close()
	bar := c.progress(func(done int64) string { return fmt.Sprintf("read %s of %s", sizeText(done), snapshotText(snap)) })
	defer bar.stop()
	from := tracked{file, bar}
	c.say("warning: a snapshot holds all that its session knew, which may be secrets; keep it like one")
	if out == "-" {
		if _, err := io.Copy(c.stdout, from); err != nil {
			return fmt.Errorf("export %s: %w", snapshotText(snap), err)
		}
		return nil
	}
	if out == "" {
		out = file.Name
	}
	n, err := c.writeNew(out, func(w io.Writer) error {
		_, err := io.Copy(w, from)
		return err
	})
	bar.stop()
	if err != nil {
		return fmt.Errorf("export %s: %w", snapshotText(snap), err)
	}
	return c.printExported(exported{File: out, Bytes: n, Snapshot: snap.ID}, "snapshot")
}

func (c *cli) printExported(e exported, what string) error {
	return c.answer(e, e.File, fmt.Sprintf("the %s, %s", what, sizeText(e.Bytes)))
}

// writeNew makes a file for its owner alone, whole or not at all. An existing file
// is left as it is.
func (c *cli) writeNew(path string, write func(io.Writer) error) (n int64, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return 0, fmt.Errorf("%s exists and is not overwritten; name another file with --out", path)
	}
	if err != nil {
		return 0, fmt.Errorf("make the file: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	buf := bufio.NewWriterSize(f, 256<<10)
	err = errors.Join(write(buf), buf.Flush())
	if info, serr := f.Stat(); serr == nil {
		n = info.Size()
	}
	if cerr := f.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("write the file: %w", cerr)
	}
	return n, err
}

func newSessionImportCmd(c *cli) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Import an exported snapshot",
		Long: `Imports a snapshot from a file that "tine session export" wrote, on this gateway or
another, and prints the id of the new snapshot. FILE - reads standard input. With
--name the snapshot has a name, for "tine session open --from".

A snapshot with the memory of a program or the root of a container contains code
that will run: import only files that you trust.`,
		Example: `  tine session import base.tine --name base
  tine session open --from base
  ssh other tine session export base -o - | tine session import - --name base`,
		Args: oneArg("a file that tine session export wrote"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.importSnapshot(cmd.Context(), args[0], name) },
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the snapshot, for \"tine session open --from\"")
	c.completeFlag(cmd, "name", cobra.NoFileCompletions)
	return cmd
}

func (c *cli) importSnapshot(ctx context.Context, path, name string) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	var from io.Reader
	total := ""
	switch path {
	case "-":
		if c.inTerminal {
			return usagef("a snapshot is nothing to type at a terminal; name a file, or send one to standard input")
		}
		from = c.stdin
	default:
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("import: %w", err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return fmt.Errorf("import: %w", err)
		}
		if info.IsDir() {
			return usagef("%s is a folder; name the file in it", path)
		}
		if info.Mode().IsRegular() {
			total = " of " + sizeText(info.Size())
		}
		from = f
	}
	bar := c.progress(func(done int64) string { return "sent " + sizeText(done) + total })
	snap, err := g.ImportSnapshot(ctx, name, tracked{from, bar})
	bar.stop()
	if err != nil {
		return g.explain(mendSnapshot(err))
	}
	return c.printImported(snap)
}

func (c *cli) printImported(snap *api.Snapshot) error {
	// Its session belongs to another gateway, or is gone.
	shown := *snap
	if !c.flags.json {
		shown.Session = ""
	}
	return c.printMade(&shown)
}
