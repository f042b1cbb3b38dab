package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/agent/hook"
	"github.com/tine-mcp/tine/internal/secret"
)

// startHooks runs the hooks before a run, one after the other, and returns the parameters
// that they have left. Each sees those of the one before it.
func (b *Book) startHooks(ctx context.Context, p blueprint.Blueprint, in Input, input blueprint.Input) (map[string]any, error) {
	for i, h := range p.Hooks.Start {
		start, err := blueprint.StartHooks(p, input)
		if err != nil {
			return nil, faultOf(p.Name, err)
		}
		b.o.Secret(start.Secrets)
		which := fmt.Sprintf("agent %s: hooks.%s[%d]", p.Name, hook.Start, i)
		answer, err := b.ask(ctx, start.Commands[i], hook.Document{
			Hook: hook.Start, Run: in.Run, Session: in.Session, Agent: p.Name, Resume: in.Resume, Callback: in.Callback, Parameters: start.Parameters,
			ProjectDir: in.ProjectDir, Parent: in.Parent, ParentAgent: in.ParentAgent,
		})
		changed := input
		if err == nil && answer.Parameters != nil {
			changed.Parameters = answer.Parameters
			err = fits(p, changed)
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			b.failed(which, in.Run, start.Commands[i], err)
			if h.Continue {
				continue
			}
			return nil, &api.Error{Kind: api.KindInfrastructure, Message: which + " failed, so the run is refused: " + err.Error() + ". The gateway's log has what it wrote; on_error: continue has a run go on"}
		case answer.Refused:
			b.o.Log.Info("a hook of an agent refused a run", "hook", which, "run", in.Run, "session", in.Session, "reason", secret.Masked(answer.Reason))
			return nil, &refusal{refused(http.StatusForbidden, false, which+" refuses the run: "+secret.Masked(answer.Reason))}
		}
		input = changed
	}
	return input.Parameters, nil
}

// refusal is the error of a hook that refuses a run.
type refusal struct{ why *api.Error }

func (r *refusal) Error() string { return r.why.Error() }
func (r *refusal) Unwrap() error { return r.why }

// fits holds the parameters that a hook has given against the blueprint.
func fits(p blueprint.Blueprint, in blueprint.Input) error {
	data, err := json.Marshal(in.Parameters)
	if err != nil {
		return err
	}
	if len(data) > mostParameters {
		return fmt.Errorf("the parameters that it gave have %d bytes of JSON and may have %d", len(data), mostParameters)
	}
	if _, err := blueprint.StartHooks(p, in); err != nil {
		return fmt.Errorf("the parameters that it gave: %w", err)
	}
	return nil
}

// ask runs a hook and reads its answer.
func (b *Book) ask(ctx context.Context, c blueprint.Command, d hook.Document) (hook.Answer, error) {
	out, err := b.tell(ctx, c, d)
	if err != nil {
		return hook.Answer{}, err
	}
	return hook.ReadAnswer(out)
}

// tell runs a hook.
func (b *Book) tell(ctx context.Context, c blueprint.Command, d hook.Document) ([]byte, error) {
	input, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	return b.o.Hooks.Run(ctx, c, input)
}

// failed logs that a hook failed, and what it wrote, without the values that it was given.
func (b *Book) failed(which, run string, c blueprint.Command, err error) {
	var f *hook.Failure
	words := ""
	if errors.As(err, &f) {
		words = f.Words
	}
	for _, v := range c.Env {
		if len(v) > 0 {
			words = strings.ReplaceAll(words, v, secret.Mask)
		}
	}
	for _, v := range c.Args {
		if len(v) > 0 {
			words = strings.ReplaceAll(words, v, secret.Mask)
		}
	}
	b.o.Log.Warn("a hook of an agent failed", "hook", which, "run", run, "command", c.Command, "err", err, "stderr", secret.Masked(words))
}

// Finished implements Blueprints. A hook that fails keeps no other from being run, and is
// not run again.
func (b *Book) Finished(ctx context.Context, hooks []blueprint.Command, run api.Run) error {
	for i, c := range hooks {
		_, err := b.tell(ctx, c, hook.Document{
			Hook: hook.Finish, Run: run.ID, Session: run.Session, Agent: run.Agent, Resume: run.Resume, Parameters: run.Parameters,
			ProjectDir: run.ProjectDir, Parent: run.Parent, State: run.State, Result: run.Result, Error: run.Error, Usage: run.Usage,
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			b.failed(fmt.Sprintf("agent %s: hooks.%s[%d]", run.Agent, hook.Finish, i), run.ID, c, err)
		}
	}
	return nil
}
