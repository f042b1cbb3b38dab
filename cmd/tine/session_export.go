package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

func newSessionExportCmd(c *cli) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "export ID|SNAPSHOT",
		Short: "Write down what happened in a session, or a snapshot as one file",
		Long: `Of a session, open or closed, it writes what happened as JSON, one step a line: from
its first ancestor on every call with its arguments, result, outcome and time,
every fork, snapshot and rewind. It goes to standard output, or to the file that
--out names.

Of a snapshot, by its name or id, it writes all that it holds as one file, which
"tine session import" reads, here or at another gateway. The file is NAME.tine
unless --out says otherwise; --out - is standard output.

Nothing is cut or masked in either: they may hold secrets. Files are made for
their owner alone, and one that is there is never written over. A snapshot that
is named so goes before a session whose id begins so, or that is named so.

` + sessionIDs,
		Example: `  tine session export 3f9a | jq -c 'select(.type == "call") | [.server, .name, .outcome]'
  tine session export 3f9a -o run7.jsonl
  tine session export base
  tine session export base -o - | ssh other tine session import - --name base`,
		Args:              oneArg("the id of a session, or the name of a snapshot"),
		ValidArgsFunction: c.completeExport,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.export(cmd.Context(), args[0], out) },
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "the file to write, - for standard output")
	return cmd
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

// findExport finds what is meant: a snapshot or a session.
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
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for step, err := range g.Trajectory(ctx, id) {
		if err != nil {
			return err
		}
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

// writeNew makes a file for its owner alone, whole or not at all. One that is
// there is left as it is.
func (c *cli) writeNew(path string, write func(io.Writer) error) (n int64, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return 0, fmt.Errorf("%s is there already and is not written over; name another file with --out", path)
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
		Short: "Take in a snapshot that was exported",
		Long: `Reads a file that "tine session export" wrote of a snapshot, here or at another
gateway, and prints the id of the snapshot that it is now. FILE - is standard
input. With --name new sessions are opened from it by that name.

A snapshot says which programs its servers are: take in only what you would run.`,
		Example: `  tine session import base.tine --name base
  tine session open --from base
  ssh other tine session export base -o - | tine session import - --name base`,
		Args: oneArg("a file that tine session export wrote"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.importSnapshot(cmd.Context(), args[0], name) },
	}
	cmd.Flags().StringVar(&name, "name", "", "call it so, to open sessions from")
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
	// The session it was made of is another gateway's, or gone.
	shown := *snap
	if !c.flags.json {
		shown.Session = ""
	}
	return c.printMade(&shown)
}
