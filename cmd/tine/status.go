package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

func newStatusCmd(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show whether the gateway runs and accepts calls",
		Long: `Shows whether the gateway runs and accepts calls, with its version and address, and
why a changed config is not used.

The exit code is 0 when it accepts calls, and 1 when it can't be reached or is
stopping. Use it as a health check in supervisors and in containers without a
shell.`,
		Example: "  tine status\n  tine status --json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.status(cmd.Context()) },
	}
}

func (c *cli) status(ctx context.Context) error {
	g, err := c.connect()
	if err != nil {
		return err
	}
	s, err := ask(ctx, g, g.Status)
	if err != nil {
		return err
	}
	if c.flags.json {
		if err := c.printJSON(s); err != nil {
			return err
		}
	} else {
		c.printStatus(s)
	}
	if s.Draining { // which the JSON says too
		return errors.New("the gateway is stopping and takes no more calls")
	}
	return nil
}

func (c *cli) printStatus(s *api.Status) {
	fmt.Fprintf(c.stdout, "Tine %s at %s\n\n", s.Version, s.URL)
	t := c.thing()
	t.lines.indent = "  "
	t.line("process", fmt.Sprintf("%d, for %s", s.PID, c.now().Sub(s.Started).Round(time.Second)))
	t.line("sessions", fmt.Sprint(s.Sessions))
	t.line("calls", fmt.Sprintf("%d running", s.InFlight))
	t.line("config", s.Config)
	if n := s.NotReloaded; n != nil {
		t.painted("not reloaded", n.Reason, red)
		t.line("tried", c.moment(n.At)+"; the config of before stays")
	}
	t.line("state", s.State)
	t.print()
}
