package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// runOptions are the flags of commands that start runs.
type runOptions struct {
	params  []string
	prompt  string
	dir     string
	scope   []string
	labels  []string
	demands api.Demands
	key     string
	follow  bool
	wait    bool
	// prompted says that a prompt is given, which may be empty.
	prompted bool
}

func (o *runOptions) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&o.params, "param", nil, "a parameter, KEY=VALUE; KEY:=JSON for other JSON than the schema says, KEY=@FILE for a file's text; repeatable")
	f.StringVar(&o.prompt, "prompt", "", "the prompt, the same as --param prompt=TEXT")
	f.StringVar(&o.key, "key", "", "an idempotency key: the same request with it gives the same run")
	f.BoolVarP(&o.follow, "follow", "f", false, "print what the agent does, then its result")
	f.BoolVarP(&o.wait, "wait", "w", false, "wait for the result and print it")
}

func newRunCmd(c *cli) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run AGENT [PROMPT]",
		Short: "Start an agent",
		Long: `Starts an agent in a session of its own. The gateway accepts the run at once and
does it even if this command ends; "tine runs" shows how it goes. With --follow the
command prints what the agent does, and with --wait its result; the run's id comes
first, on standard error. With --follow --json each event is a line, and the run as it
has ended the last one. The exit status is then 0 only if the agent has completed
its work. An agent that has started others, and is called back when they end, has
completed it when it was told of all of them. A gateway that is restarted meanwhile is
waited for.

"tine agent list" lists the agents, and "tine agent show AGENT" what one wants.`,
		Example: `  tine run reviewer "Review the last commit" --follow
  tine run reviewer --param prompt=@task.txt --param depth:=3 --wait
  tine run worker --prompt "Count the files" --project-dir ~/project --label team=a
  ID=$(tine run worker --prompt go)
  tine run worker --prompt go --follow --json | tail -n 1 | jq -r .result.text`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usagef("run wants the name of an agent, and a prompt if it has one")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				if cmd.Flags().Changed("prompt") {
					return usagef("the prompt is given twice: as an argument, and with --prompt")
				}
				o.prompt = args[1]
			}
			o.prompted = len(args) == 2 || cmd.Flags().Changed("prompt")
			return c.startRun(cmd.Context(), api.NewRun{Agent: args[0]}, o)
		},
		ValidArgsFunction: c.completeServedAgents,
	}
	o.add(cmd)
	f := cmd.Flags()
	f.StringVar(&o.dir, "project-dir", "", "the folder that the agent works in")
	f.StringArrayVar(&o.scope, "scope", nil, "a value for placeholders, KEY=VALUE, which the model does not see and children inherit; repeatable")
	labelFlag(cmd, &o.labels, "a label of the run and its session, KEY=VALUE; repeatable")
	f.StringArrayVar(&o.demands.Tags, "demand", nil, "a tag that the runner must have; repeatable, and all must match")
	return cmd
}

// startRun starts or resumes an agent and, where that is asked for, waits for its result.
func (c *cli) startRun(ctx context.Context, in api.NewRun, o runOptions) (err error) {
	if in.Labels, err = parseLabels(o.labels); err != nil {
		return err
	}
	if in.Scope, err = parseScope(o.scope); err != nil {
		return err
	}
	if o.dir != "" {
		if in.ProjectDir, err = filepath.Abs(o.dir); err != nil {
			return err
		}
	}
	if len(o.demands.Tags) > 0 {
		in.Demands = &o.demands
	}
	in.Prompt = o.prompt
	g, err := c.connect()
	if err != nil {
		return err
	}
	if in.Parameters, err = c.runParameters(ctx, g, in, o.params); err != nil {
		return err
	}
	if o.prompted && o.prompt == "" && in.Parameters["prompt"] == nil {
		in.Parameters = maps.Collect(maps.All(in.Parameters))
		in.Parameters["prompt"] = ""
	}
	var once []client.CreateOption
	if o.key != "" {
		once = append(once, client.Once(o.key))
	}
	run, err := ask(ctx, g, func(ctx context.Context) (*api.Run, error) { return g.StartRun(ctx, in, once...) })
	if err != nil {
		return mendStart(in, err)
	}
	what := fmt.Sprintf("%s in %s", run.ID, run.Session)
	follow, wait := c.own("tine runs logs --follow "+run.ID), c.own("tine runs show --wait "+run.ID)
	switch {
	case o.follow:
		c.say("%s; if this command is interrupted, go on with `%s`", what, follow)
		return c.followRun(ctx, run.ID, true)
	case o.wait:
		c.say("%s; if this command is interrupted, go on with `%s`", what, wait)
		return c.awaitRun(ctx, run.ID, true)
	}
	return c.answer(run, run.ID, fmt.Sprintf("in %s; follow it with `%s`, get its result with `%s`", run.Session, follow, wait))
}

// runParameters are the parameters of a command line, of the types that the agent's
// schema says.
func (c *cli) runParameters(ctx context.Context, g *gateway, in api.NewRun, given []string) (api.Parameters, error) {
	if len(given) == 0 {
		return nil, nil
	}
	pairs := make([]pair, len(given))
	for i, text := range given {
		var err error
		if pairs[i], err = parsePair(text); err != nil {
			return nil, err
		}
	}
	name := in.Agent
	if name == "" {
		s, err := askFor(ctx, g, g.AgentSession, in.Session)
		if err != nil {
			return nil, mendRun(err)
		}
		name = s.Agent
	}
	a, err := askFor(ctx, g, g.Agent, name)
	if err != nil {
		return nil, mendStart(in, err)
	}
	raw, err := arguments(nil, pairs, newToolSchema("agent "+name, a.Parameters), c.openArgument())
	if err != nil {
		return nil, err
	}
	var out api.Parameters
	return out, json.Unmarshal(raw, &out)
}

func parseScope(given []string) (map[string]string, error) {
	var scope map[string]string
	for _, text := range given {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, usagef("--scope wants KEY=VALUE")
		}
		if scope == nil {
			scope = make(map[string]string)
		}
		scope[key] = value
	}
	return scope, nil
}

// awaitRun waits for the end of a run and of those that follow from it, and prints the
// result of the last one. known says that the gateway has answered before.
func (c *cli) awaitRun(ctx context.Context, id string, known bool) error {
	run, err := c.waitRun(ctx, id, known)
	if err == nil {
		run, err = c.lastRun(ctx, run, nil)
	}
	if err != nil {
		return err
	}
	return c.runResult(run)
}

// lastRun waits until a run that is completed has been called back by all agents that it
// has started, and returns the last run that was told of them. begun is called with each of
// these; nil for nothing.
func (c *cli) lastRun(ctx context.Context, first *api.Run, begun func(id string) error) (*api.Run, error) {
	last, said := first, 0
	for first.State == api.RunCompleted {
		now, err := c.waitRun(ctx, first.ID, true) // as it is
		if err != nil {
			return nil, err
		}
		if id := now.CalledBack; id != "" && id != last.ID {
			said = 0
			if begun != nil {
				err = begun(id)
			}
			if err == nil {
				last, err = c.waitRun(ctx, id, true)
			}
			if err != nil {
				return nil, err
			}
			continue
		}
		if now.Awaits == 0 {
			break
		}
		if now.Awaits != said {
			said = now.Awaits
			c.say("%s is %s, and its agent is called back by %s", last.ID, last.State, count(said, "agent"))
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.after(waitPause):
		}
	}
	return last, nil
}

// runResult prints what a run came to.
func (c *cli) runResult(run *api.Run) error {
	if c.flags.json {
		if err := c.printJSON(run); err != nil {
			return err
		}
	} else {
		c.sayResult(run)
	}
	return runStatus(run)
}

// runStatus is the exit status of a command that waits for a run. Only a run that is
// completed is a success.
func runStatus(run *api.Run) error {
	if run.State != api.RunCompleted {
		return exitStatus(exitFailed)
	}
	return nil
}

func (c *cli) sayResult(run *api.Run) {
	switch {
	case run.State == api.RunCompleted && run.Result != nil:
		c.printRunResult(run.Result)
	case run.State == api.RunCompleted && run.Withheld:
		c.say("run %s is completed; its owner and operators read its result", run.ID)
	case run.State == api.RunCompleted:
		c.say("run %s is completed and has no result", run.ID)
	case run.State == api.RunStopped:
		by := ""
		if run.StoppedBy != "" { // it may be withheld
			by = " by " + run.StoppedBy
		}
		c.say("run %s was stopped%s", run.ID, by)
	case run.Error != nil:
		c.say("run %s has failed (%s): %s", run.ID, run.Error.Kind, run.Error.Message)
	default:
		c.say("run %s is %s", run.ID, run.State)
	}
}

func (c *cli) printRunResult(r *api.RunResult) {
	if r.Text != "" || len(r.Data) == 0 {
		fmt.Fprintln(c.stdout, visible(r.Text, c.outTerminal))
	}
	if len(r.Data) > 0 {
		fmt.Fprintln(c.stdout, visible(indent(r.Data, ""), c.outTerminal))
	}
}

// mendRun adds the kind of failure to an error about a run, and what can be done.
func mendRun(err error) error { return mended(err, "tine runs") }

// mendStart does the same for a run that was not accepted.
func mendStart(in api.NewRun, err error) error {
	if in.Agent != "" {
		return mended(err, "tine agent list")
	}
	return mendRun(err)
}
