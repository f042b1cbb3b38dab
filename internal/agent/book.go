package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/agent/hook"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
)

// A Book is the Blueprints of a gateway: those in files, and those of the API. What it is
// given as functions is asked at each use, so that a new config counts at once.
type Book struct{ o BookOptions }

// BookOptions are those of NewBook. Only Settings, Secret and Log may be nil.
type BookOptions struct {
	Store  *blueprint.Store
	Hooks  *hook.Programs
	Agents func() config.Agents
	// Getenv reads the gateway's environment, for the variables that the config allows.
	Getenv func(name string) (string, bool)
	// Servers are the ids of the config's.
	Servers func() []string
	// Starts reports whether the owner of a session may have a server started; see
	// access.Owners.
	Starts func(owner string, pinned []byte, server string) bool
	// Settings holds executor_config against what an executor knows.
	Settings func(executor string, settings map[string]any) error
	// Secret is told values that must not be shown, before anything is done with them.
	Secret func(values []string)
	Log    *slog.Logger
}

var _ Blueprints = (*Book)(nil)

// NewBook makes a Book.
func NewBook(o BookOptions) *Book {
	if o.Settings == nil {
		o.Settings = func(string, map[string]any) error { return nil }
	}
	if o.Secret == nil {
		o.Secret = func([]string) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Book{o}
}

// Resolve implements Blueprints.
func (b *Book) Resolve(ctx context.Context, name string, in Input) (Resolved, error) {
	p, err := b.o.Store.Get(ctx, name)
	if err != nil {
		return Resolved{}, faultOf(name, err)
	}
	agents := b.o.Agents()
	if err := b.usable(p, in); err != nil {
		return Resolved{}, err
	}
	exec, ok := agents.ExecutorNamed(p.Executor)
	if !ok {
		return Resolved{}, wrong(blueprint.CodeBlueprint, "agent %s: there is no executor %q; there are %s, and agents.executors of the config adds others", p.Name, control.Clip(p.Executor), strings.Join(agents.ExecutorNames(), ", "))
	}
	input := blueprint.Input{
		Parameters: in.Parameters, Unchecked: in.Callback, Scope: in.Scope, Env: agents.Environ(b.o.Getenv),
		Runtime: blueprint.Runtime{Run: in.Run, Session: in.Session},
	}
	if input.Parameters, err = b.startHooks(ctx, p, in, input); err != nil {
		return Resolved{}, err
	}
	res, err := blueprint.Resolve(p, input)
	if err != nil {
		return Resolved{}, faultOf(p.Name, err)
	}
	b.o.Secret(res.Secrets)
	if settings, ok := res.Settings(); ok {
		if err := b.o.Settings(p.Executor, settings); err != nil {
			return Resolved{}, wrong(blueprint.CodeBlueprint, "agent %s: %v", p.Name, err)
		}
	}
	return Resolved{Resolved: res, Procedural: exec.Type == config.ExecutorProcedural, Made: made(p)}, nil
}

// made says who defined the servers of a blueprint.
func made(p blueprint.Blueprint) string {
	switch {
	case p.Source != "":
		return access.MadeByFile
	case p.Operator:
		return access.MadeByOperator
	}
	return ""
}

// usable refuses a blueprint that a session's owner can't use.
func (b *Book) usable(p blueprint.Blueprint, in Input) error {
	if err := privileged(p, made(p) != ""); err != nil {
		return err
	}
	servers, own := b.o.Servers(), b.own(in.Owner, in.Pinned)
	for _, name := range slices.Sorted(maps.Keys(p.Servers)) {
		ref := p.Servers[name].Ref
		if ref != "" && !slices.Contains(own, ref) {
			err := p.CheckServers(own)
			e := fault(p.Name, err)
			var mistakes *config.Error
			if len(own) < len(servers) && errors.As(err, &mistakes) {
				// It is not said whether there is one, nor where the blueprint is.
				e.Message = "agent " + p.Name + ": "
				for _, problem := range mistakes.Problems {
					e.Message += problem.Message + "; "
				}
				e.Message += "or the owner of the session may not use it, which the rules decide (auth.rules)"
			}
			e.Server = control.Clip(ref)
			return e
		}
		if ref == "" && !slices.Contains(servers, name) && !b.o.Starts(in.Owner, in.Pinned, name) {
			return &api.Error{
				Kind: api.KindRefused, Status: http.StatusForbidden, Server: name,
				Message: "agent " + p.Name + ": mcp_servers." + name + ": no rule gives the owner of the session a server of this name; have it named in the servers of a rule (auth.rules)",
			}
		}
	}
	return nil
}

// own are the servers that an owner may use. Another one has the words of one that there is
// not.
func (b *Book) own(owner string, pinned []byte) []string {
	return slices.DeleteFunc(slices.Clone(b.o.Servers()), func(id string) bool { return !b.o.Starts(owner, pinned, id) })
}

// privileged refuses a document of the API that has what only an operator may give it.
func privileged(p blueprint.Blueprint, may bool) error {
	keys := p.Privileged()
	if may || len(keys) == 0 {
		return nil
	}
	return refused(http.StatusForbidden, false, fmt.Sprintf("agent %s: %s: this needs the role operator, since it runs programs, reaches servers or reads variables that the config does not give everybody; leave it out, or have an operator send the blueprint", p.Name, strings.Join(keys, ", ")))
}

// List implements Blueprints.
func (b *Book) List(ctx context.Context, who identity.Principal) ([]api.Agent, error) {
	list, err := b.o.Store.List(ctx)
	if err != nil {
		return nil, err
	}
	k := b.known(who)
	for _, l := range list {
		k.Agents = append(k.Agents, l.Name)
	}
	all := make([]api.Agent, 0, len(list))
	for _, l := range list {
		all = append(all, b.listed(l.Blueprint, l.Err, k))
	}
	return all, nil
}

// known is what blueprints may name whose runs are a caller's.
func (b *Book) known(who identity.Principal) blueprint.Known {
	agents := b.o.Agents()
	k := blueprint.Known{Servers: b.own(who.Name, identity.Pin(who)), Executors: agents.ExecutorNames(), Env: make(map[string]bool, len(agents.Env)), Config: b.o.Settings, Program: b.o.Hooks.Find}
	for _, name := range agents.Env {
		_, k.Env[name] = b.o.Getenv(name)
	}
	return k
}

// listed is a blueprint as it is listed, and what is wrong with it.
func (b *Book) listed(p blueprint.Blueprint, err error, k blueprint.Known) api.Agent {
	a := p.API()
	exec, _ := b.o.Agents().ExecutorNamed(p.Executor)
	a.Procedural = exec.Type == config.ExecutorProcedural
	var mistakes *config.Error
	switch {
	case errors.As(err, &mistakes):
		for _, m := range mistakes.Problems {
			a.Problems = append(a.Problems, m.String())
		}
		if mistakes.More > 0 {
			a.Problems = append(a.Problems, fmt.Sprintf("and %d more", mistakes.More))
		}
	case err != nil:
		a.Problems = append(a.Problems, err.Error())
	default:
		if err := privileged(p, made(p) != ""); err != nil {
			a.Problems = append(a.Problems, err.Error())
		}
		problems, _ := p.Check(k)
		for _, m := range problems {
			a.Problems = append(a.Problems, m.String())
		}
	}
	return a
}

func wrong(code, format string, args ...any) *api.Error {
	return &api.Error{Kind: api.KindInvalid, Status: http.StatusBadRequest, Code: code, Message: fmt.Sprintf(format, args...)}
}

// faultOf is an error about a blueprint for callers, where it is one that they can mend.
func faultOf(name string, err error) error {
	if e := fault(name, err); e != nil {
		return e
	}
	return err
}

func fault(name string, err error) *api.Error {
	var invalid *blueprint.InvalidError
	var mistakes *config.Error
	switch {
	case errors.As(err, &invalid):
		e := wrong(invalid.Code, "agent %s: %v", control.Clip(name), err)
		for _, v := range invalid.Violations {
			e.ValidationErrors = append(e.ValidationErrors, api.ValidationError(v))
		}
		return e
	case errors.As(err, &mistakes):
		return wrong(blueprint.CodeBlueprint, "agent %s can't be used: %v", control.Clip(name), err)
	case errors.Is(err, blueprint.ErrUnknown):
		return &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: err.Error()}
	case errors.Is(err, blueprint.ErrFile):
		return &api.Error{Kind: api.KindInvalid, Status: http.StatusConflict, Message: err.Error()}
	case errors.Is(err, blueprint.ErrFull):
		return refused(http.StatusConflict, false, err.Error())
	}
	return nil
}
