package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
)

const (
	mostList = 1000 // runs or sessions of one list
	mostTree = 5000 // sessions below one
)

// Agents lists the blueprints; to an agent those that it may start.
func (s *Service) Agents(ctx context.Context, who identity.Principal) (api.AgentList, error) {
	self, err := s.caller(ctx, who)
	if err != nil {
		return api.AgentList{}, err
	}
	all, err := s.o.Blueprints.List(ctx, who)
	if err != nil {
		return api.AgentList{}, err
	}
	all = slices.DeleteFunc(slices.Clone(all), func(a api.Agent) bool { return mayStart(self, a.Name) != nil })
	if self != nil {
		for i := range all {
			all[i].Source = ""
		}
	}
	return api.AgentList{Agents: all}, nil
}

// Agent returns one of those that Agents lists.
func (s *Service) Agent(ctx context.Context, who identity.Principal, name string) (api.Agent, error) {
	list, err := s.Agents(ctx, who)
	if err != nil {
		return api.Agent{}, err
	}
	names := make([]string, len(list.Agents))
	for i, a := range list.Agents {
		if a.Name == name {
			return a, nil
		}
		names[i] = a.Name
	}
	message := fmt.Sprintf("there is no agent %q", control.Clip(name))
	if near := config.Nearest(name, names); near != "" {
		message += fmt.Sprintf(" (did you mean %q?)", near)
	}
	return api.Agent{}, &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: message}
}

// Run returns one.
func (s *Service) Run(ctx context.Context, who identity.Principal, id string) (api.Run, error) {
	r, l, err := s.runAt(ctx, who, id)
	if err != nil {
		return api.Run{}, err
	}
	return s.now(ctx, l, r)
}

// now is a run as it is now, with what follows from it.
func (s *Service) now(ctx context.Context, l look, r *run) (out api.Run, err error) {
	out = s.shown(l, r)
	if r.State == api.RunCompleted && l.reads {
		err = s.follow(ctx, r, &out)
	}
	return out, err
}

func (l look) show(r *run) api.Run {
	if !l.reads {
		return outside(r.api())
	}
	return r.api()
}

// Wait returns a run when it has ended.
func (s *Service) Wait(ctx context.Context, who identity.Principal, id string) (api.Run, error) {
	for {
		s.mu.Lock()
		var ended chan struct{}
		if l := s.live[id]; l != nil {
			ended = l.ended
		}
		s.mu.Unlock()
		r, l, err := s.runAt(ctx, who, id)
		if err != nil {
			return api.Run{}, err
		}
		if r.ended() {
			return s.now(ctx, l, r)
		}
		if ended == nil { // it was written just now
			err := s.change(ctx, func(c *change) error {
				r, err := c.run(id)
				if err == nil {
					c.after = append(c.after, func() { s.index(r, c.now) })
				}
				return err
			})
			if err != nil {
				return api.Run{}, err
			}
			continue
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return s.shown(l, r), ctx.Err()
		case <-s.ctx.Done():
			return s.shown(l, r), ErrClosed
		}
	}
}

// Result is what a run has come to, or the last run of a session.
func (s *Service) Result(ctx context.Context, who identity.Principal, id string) (api.RunResult, error) {
	if strings.HasPrefix(id, "ses_") {
		sess, _, err := s.sessionAt(ctx, who, id)
		if err != nil {
			return api.RunResult{}, err
		}
		id = sess.d.Run
	}
	r, l, err := s.runAt(ctx, who, id)
	switch {
	case err != nil:
		return api.RunResult{}, err
	case !l.reads:
		return api.RunResult{}, access.Need(who, api.RoleOperator)
	case !r.ended():
		return api.RunResult{}, refused(http.StatusConflict, true, "run "+r.ID+" is "+r.State+"; there is a result when it has ended")
	case r.api().Error != nil:
		return api.RunResult{}, r.api().Error
	case r.d.Result == nil:
		return api.RunResult{}, nil
	}
	return *r.d.Result, nil
}

// Session returns one.
func (s *Service) Session(ctx context.Context, who identity.Principal, id string) (api.AgentSession, error) {
	sess, _, err := s.sessionAt(ctx, who, id)
	if err != nil {
		return api.AgentSession{}, err
	}
	return sess.api(), nil
}

// A Filter chooses runs or sessions. Zero fields choose all that the caller may know of.
type Filter struct {
	Session string // of runs
	Parent  string
	Agent   string
	States  []string
	Before  string // as in store.RunFilter
	Limit   int    // zero for 100
}

// owner bounds a list to what a caller may know of.
func owner(who identity.Principal) *string {
	if access.All(who) {
		return nil
	}
	return &who.Name
}

func (f *Filter) check(moves map[string][]string) error {
	if f.Limit = cmp.Or(f.Limit, 100); f.Limit < 0 || f.Limit > mostList {
		return control.Invalid("limit must be a number from 1 to %d", mostList)
	}
	states := slices.Compact(slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(moves))...))))
	for _, state := range f.States {
		if !slices.Contains(states, state) {
			return control.Invalid("state: %q is none of %s", control.Clip(state), strings.Join(states, ", "))
		}
	}
	return nil
}

// Runs lists the newest first.
func (s *Service) Runs(ctx context.Context, who identity.Principal, f Filter) (api.RunList, error) {
	if err := f.check(runMoves); err != nil {
		return api.RunList{}, err
	}
	in := store.RunFilter{Owner: owner(who), Session: f.Session, Parent: f.Parent, Agent: f.Agent, States: f.States, Before: f.Before, Limit: f.Limit + 1}
	var rows []store.Run
	var err error
	if who.Session == "" {
		rows, err = s.o.Store.Runs(ctx, in)
	} else {
		rows, err = s.runsBelow(ctx, who, in)
	}
	if errors.Is(err, store.ErrUnknown) {
		return api.RunList{}, noRun(f.Before)
	}
	if err != nil {
		return api.RunList{}, err
	}
	out := api.RunList{Runs: []api.Run{}}
	for i, row := range rows {
		if i == f.Limit {
			out.Next = rows[i-1].ID
			break
		}
		l, err := s.at(ctx, who, row.Owner, row.Session)
		if err != nil {
			return api.RunList{}, err
		}
		out.Runs = append(out.Runs, l.show(readRun(row)))
	}
	return out, nil
}

// runsBelow lists the runs that an agent may know of: its own, and those of the sessions
// below it.
func (s *Service) runsBelow(ctx context.Context, who identity.Principal, f store.RunFilter) ([]store.Run, error) {
	sessions, err := s.family(ctx, who)
	if err != nil {
		return nil, err
	}
	f.Owner = nil
	var all []store.Run
	for _, one := range sessions {
		if f.Session != "" && f.Session != one.ID {
			continue
		}
		part := f
		part.Session, part.Before, part.Limit = one.ID, "", mostList
		rows, err := s.o.Store.Runs(ctx, part)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	slices.SortFunc(all, func(a, b store.Run) int { return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID)) })
	return after(all, f.Before, f.Limit, func(r store.Run) string { return r.ID })
}

// family are the sessions that an agent may know of.
func (s *Service) family(ctx context.Context, who identity.Principal) ([]store.AgentSession, error) {
	row, ok, err := s.o.Store.AgentSession(ctx, who.Session)
	if err != nil || !ok {
		return nil, err
	}
	all := []store.AgentSession{row}
	if who.Run == "" {
		return all, nil
	}
	below, err := s.below(ctx, row.ID, mostList)
	return append(all, below...), err
}

// after is the part of a list behind one of its elements.
func after[T any](all []T, before string, limit int, id func(T) string) ([]T, error) {
	if before != "" {
		i := slices.IndexFunc(all, func(v T) bool { return id(v) == before })
		if i < 0 {
			return nil, fmt.Errorf("after %q: %w", before, store.ErrUnknown)
		}
		all = all[i+1:]
	}
	return all[:min(limit, len(all))], nil
}

// Sessions lists the newest first.
func (s *Service) Sessions(ctx context.Context, who identity.Principal, f Filter) (api.AgentSessionList, error) {
	if err := f.check(sessionMoves); err != nil {
		return api.AgentSessionList{}, err
	}
	var rows []store.AgentSession
	var err error
	if who.Session == "" {
		rows, err = s.o.Store.AgentSessions(ctx, store.AgentFilter{Owner: owner(who), Parent: f.Parent, Agent: f.Agent, States: f.States, Before: f.Before, Limit: f.Limit + 1})
	} else if rows, err = s.family(ctx, who); err == nil {
		rows = slices.DeleteFunc(rows, func(r store.AgentSession) bool {
			return f.Parent != "" && r.Parent != f.Parent || f.Agent != "" && r.Agent != f.Agent || len(f.States) > 0 && !slices.Contains(f.States, r.State)
		})
		slices.SortFunc(rows, func(a, b store.AgentSession) int {
			return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
		})
		rows, err = after(rows, f.Before, f.Limit+1, func(r store.AgentSession) string { return r.ID })
	}
	if errors.Is(err, store.ErrUnknown) {
		return api.AgentSessionList{}, noSession(f.Before)
	}
	if err != nil {
		return api.AgentSessionList{}, err
	}
	out := api.AgentSessionList{Sessions: []api.AgentSession{}}
	for i, row := range rows {
		if i == f.Limit {
			out.Next = rows[i-1].ID
			break
		}
		out.Sessions = append(out.Sessions, readSession(row).api())
	}
	return out, nil
}

// Tree is a run with all that its agent has started, and those have started.
func (s *Service) Tree(ctx context.Context, who identity.Principal, id string) (api.RunTree, error) {
	r, l, err := s.runAt(ctx, who, id)
	if err != nil {
		return api.RunTree{}, err
	}
	left := mostTree
	return s.tree(ctx, l, r, &left, 0)
}

// tree trusts a look at the top: who sees a run sees all below it, whose owner is the
// same.
func (s *Service) tree(ctx context.Context, l look, r *run, left *int, depth int) (api.RunTree, error) {
	out := api.RunTree{Run: l.show(r)}
	if depth == mostGenerations {
		return out, nil
	}
	for before := ""; ; {
		page, err := s.o.Store.Runs(ctx, store.RunFilter{Parent: r.Session, Before: before, Limit: pageSize})
		if err != nil {
			return out, err
		}
		for _, row := range page {
			child := readRun(row)
			if child.d.ParentRun != r.ID {
				continue
			}
			if *left--; *left < 0 {
				return out, refused(http.StatusUnprocessableEntity, false, fmt.Sprintf("more than %d runs are below it; ask for the tree of one of its children", mostTree))
			}
			below, err := s.tree(ctx, l, child, left, depth+1)
			if err != nil {
				return out, err
			}
			out.Children = append(out.Children, below)
		}
		if len(page) < pageSize {
			break
		}
		before = page[pageSize-1].ID
	}
	slices.Reverse(out.Children) // the oldest first
	return out, nil
}
