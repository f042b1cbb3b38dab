package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

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
