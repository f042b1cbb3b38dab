package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

func newRunShowCmd(c *cli) *cobra.Command {
	wait := false
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show a run with its result",
		Example: `  tine runs show 3f9a
  tine runs show 3f9a --wait --json`,
		Args:              oneRun,
		ValidArgsFunction: c.completeRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			g, id, err := c.runRef(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if wait {
				return c.awaitRun(cmd.Context(), id, false)
			}
			run, err := ask(cmd.Context(), g, func(ctx context.Context) (*api.Run, error) { return g.Run(ctx, id, 0) })
			if err != nil {
				return mendRun(err)
			}
			return c.showRun(run)
		},
	}
	cmd.Flags().BoolVarP(&wait, "wait", "w", false, "wait until it has ended, and print its result alone")
	return cmd
}

func (c *cli) showRun(r *api.Run) error {
	if c.flags.json {
		return c.printJSON(r)
	}
	t := c.thing()
	t.line("run", r.ID)
	t.line("agent", r.Agent)
	t.painted("state", r.State, runColor(r.State))
	t.line("waits for", r.WaitsFor)
	t.line("stopped by", r.StoppedBy)
	t.line("session", r.Session)
	t.line("parent", r.Parent)
	t.line("owner", r.Owner)
	t.line("mode", r.Mode)
	t.line("labels", labelText(r.Labels))
	t.line("project dir", r.ProjectDir)
	t.line("runner", r.Runner)
	t.line("created", c.moment(r.Created))
	t.line("started", c.moment(r.Started))
	t.line("ended", c.moment(r.Ended))
	t.line("took", took(*r))
	if u := r.Usage; u != nil {
		text := fmt.Sprintf("%d tokens in, %d out", u.InputTokens, u.OutputTokens)
		if u.Cost > 0 {
			text += fmt.Sprintf(", $%.4f", u.Cost)
		}
		t.line("usage", text)
	}
	// That it was stopped is said already.
	if r.Error != nil && (r.StoppedBy == "" || r.Error.Kind != api.KindRefused) {
		t.painted("error", string(r.Error.Kind)+": "+r.Error.Message, red)
	}
	if len(r.Parameters) > 0 {
		t.line("parameters", indent(r.Parameters, ""))
	}
	t.print()
	if r.Result != nil {
		fmt.Fprintln(c.stdout)
		c.printRunResult(r.Result)
	}
	return nil
}

func newRunTreeCmd(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:               "tree ID",
		Short:             "Show a run with the runs that its agent has started",
		Example:           `  tine runs tree 3f9a`,
		Args:              oneRun,
		ValidArgsFunction: c.completeRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			g, id, err := c.runRef(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			tree, err := askFor(cmd.Context(), g, g.RunTree, id)
			if err != nil {
				return mendRun(err)
			}
			if c.flags.json {
				return c.printJSON(tree)
			}
			c.drawing(id).runs(tree, "", "")
			return nil
		},
	}
}

// runs draws a run and those below it, as node draws sessions.
func (d drawing) runs(t *api.RunTree, before, below string) {
	parts := []string{t.ID, t.Agent, t.State}
	if text := took(t.Run); text != "" {
		parts = append(parts, text)
	}
	if t.Error != nil {
		parts = append(parts, oneLine(t.Error.Message))
	}
	d.line(before, runColor(t.State), parts)
	for i := range t.Children {
		if i == len(t.Children)-1 {
			d.runs(&t.Children[i], below+d.last, below+d.blank)
		} else {
			d.runs(&t.Children[i], below+d.branch, below+d.bar)
		}
	}
}

func newRunResumeCmd(c *cli) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "resume ID",
		Short: "Give an agent that has ended its work something more to do",
		Long: `Resumes the session of a run, or the session itself, with further parameters: the
agent goes on in the same conversation and the same world. What its blueprint says
now holds: servers that are new in it join the session.`,
		Example: `  tine runs resume 3f9a --param prompt="And now the tests" --follow
  tine runs resume ses_88e01b5d2c47 --prompt "Go on" --wait`,
		Args:              oneRun,
		ValidArgsFunction: c.completeRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.prompted = cmd.Flags().Changed("prompt")
			return c.resumeRun(cmd.Context(), args[0], o)
		},
	}
	o.add(cmd)
	return cmd
}

func newRunSendCmd(c *cli) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "send ID PROMPT",
		Short: "Send a prompt to an agent that has ended its work",
		Example: `  tine runs send 3f9a "And now the tests"
  tine runs send 3f9a "And now the tests" --follow`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("runs send wants the id of a run or a session, and a prompt")
			}
			return nil
		},
		ValidArgsFunction: c.completeRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.prompt, o.prompted = args[1], true
			return c.resumeRun(cmd.Context(), args[0], o)
		},
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "print what the agent does, then its result")
	cmd.Flags().BoolVarP(&o.wait, "wait", "w", false, "wait for the result and print it")
	return cmd
}

// resumeRun resumes the session of a run, or the session itself.
func (c *cli) resumeRun(ctx context.Context, ref string, o runOptions) error {
	session := ref
	if !strings.HasPrefix(ref, sessionPrefix) {
		g, id, err := c.runRef(ctx, ref)
		if err != nil {
			return err
		}
		run, err := ask(ctx, g, func(ctx context.Context) (*api.Run, error) { return g.Run(ctx, id, 0) })
		if err != nil {
			return mendRun(err)
		}
		session = run.Session
	}
	return c.startRun(ctx, api.NewRun{Session: session}, o)
}

func oneRun(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("give the id of one run; `tine runs` lists them")
	}
	return nil
}
