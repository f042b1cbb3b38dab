package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/telemetry"
)

func newStateSetAsideCmd(c *cli) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "set-aside",
		Short: "Move the content of the state folder aside, to start empty",
		Long: `Moves the content of the state folder to a dated folder in set-aside/, inside the
state folder. The next gateway starts empty: without sessions and logins to
servers, and with a new id. Tokens of "tine token new" are moved too, so the
gateway admits callers on this machine without a token, unless the config has auth.

Processes, sandboxes and containers that an earlier gateway left running are
stopped first, and their memory is lost. Volumes and images in container engines
are not touched.

To undo, stop the gateway, set aside its new state, and move the content of the
dated folder back to the state folder.`,
		Example: `  tine state set-aside
  tine state set-aside --yes --json | jq -r .folder`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.setAside(cmd.Context(), yes) },
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

// setAsideResult is what --json prints.
type setAsideResult struct {
	Folder string    `json:"folder"`
	Held   inventory `json:"held"`
}

func (c *cli) setAside(ctx context.Context, yes bool) error {
	state, unlock, err := c.lockState(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	inv, err := takeInventory(state)
	if err != nil {
		return err
	}
	c.say("%s holds %s, besides its database", state, inv)
	c.say("  tokens and logins to servers are set aside with it: the next gateway knows none of them")
	if inv.Instances > 0 {
		c.say("  processes, sandboxes and containers of %s that still run are ended first, and their memory is lost", count(inv.Instances, "instance"))
	}
	if err := c.agreed(ctx, yes, "Set all of it aside and begin empty?"); err != nil {
		return err
	}
	if inv.Instances > 0 {
		if err := c.endLeftovers(ctx, state); err != nil {
			return fmt.Errorf("end the instances of an earlier gateway: %w", err)
		}
	}
	dir, err := beginAside(state, "everything", c.now())
	if err != nil {
		return err
	}
	all, err := listDir(state)
	if err != nil {
		return err
	}
	names := databaseNames()
	for _, path := range all {
		// The lock is ours, and stays where other processes look for it.
		if name := filepath.Base(path); name != asideFolder && name != "lock" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if err := moveAside(state, dir, names...); err != nil {
		return fmt.Errorf("%w; run it again when that is mended: it continues in %s", err, dir)
	}
	if err := endAside(dir); err != nil {
		return err
	}
	return c.answer(setAsideResult{dir, inv}, "all of it is in "+dir,
		"no token of it works any more, and the next gateway admits callers on this machine without one, unless the config has auth; `"+c.own("tine token new NAME")+"` makes one")
}

// endLeftovers ends the instances of an earlier gateway.
func (c *cli) endLeftovers(ctx context.Context, state string) error {
	id, err := store.ReadID(state)
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	if c.errTerminal {
		log = telemetry.NewLogger(c.stderr, "warn", "text", telemetry.NewRedactor())
	}
	p, err := newPlugins(pluginOptions{State: state, Gateway: id, Log: log})
	if err != nil {
		return err
	}
	defer p.close()
	for name, d := range p.drivers {
		sw, ok := d.(driver.Sweeper)
		if !ok || id == "" && name == "docker" { // without an id the owner of containers is unknown
			continue
		}
		if _, err := sw.Sweep(ctx, filepath.Join(state, "instances"), nil); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("driver %s: %w", name, err)
		}
	}
	return nil
}
