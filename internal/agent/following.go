package agent

import (
	"context"
	"slices"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/store"
)

// follow adds to a run that is completed what follows from it by callbacks.
func (s *Service) follow(ctx context.Context, r *run, out *api.Run) error {
	if below, err := s.o.Store.Runs(ctx, store.RunFilter{Parent: r.Session, Limit: 1}); err != nil || len(below) == 0 {
		return err // most runs start no agents
	}
	return s.change(ctx, func(c *change) (err error) {
		out.CalledBack, out.Awaits, err = c.following(r, 0)
		return err
	})
}

// following is the last run that was told of agents which the run has started, or one that
// was told of such, and how many of these its session is still to be told of.
func (c *change) following(r *run, depth int) (last string, awaits int, err error) {
	s, err := c.session(r.Session)
	if err != nil {
		return "", 0, err
	}
	runs, err := c.each(store.RunFilter{Session: r.Session})
	if err != nil {
		return "", 0, err
	}
	starters := map[string]bool{r.ID: true}
	for _, one := range slices.Backward(runs) { // the oldest first
		if slices.ContainsFunc(one.d.Tells, func(id string) bool { return starters[id] }) {
			starters[one.ID], last = true, one.ID
		}
	}
	if s.ended() || s.d.Closing || s.d.Held || s.d.Procedural || s.damaged || depth == mostGenerations || len(runs) > 0 && runs[0].State == api.RunStopped {
		return last, 0, nil // it is told nothing
	}
	callbacks, err := c.Callbacks(r.Session)
	if err != nil {
		return "", 0, err
	}
	for _, cb := range callbacks {
		if d := readCallback(cb); starters[d.ParentRun] && cb.Carrier == "" && d.Attempts < deliverTries {
			awaits++
		}
	}
	children, err := c.each(store.RunFilter{Parent: r.Session})
	if err != nil {
		return "", 0, err
	}
	children = slices.DeleteFunc(children, func(child *run) bool { return child.d.Mode != api.ModeAsyncCallback || !starters[child.d.ParentRun] })
	for _, child := range children {
		if !child.ended() {
			awaits++
		}
	}
	// A child that waits for agents of its own ends another run when it has heard of them.
	for i := 0; i < len(children) && awaits == 0; i++ {
		if children[i].State == api.RunCompleted {
			if _, awaits, err = c.following(children[i], depth+1); err != nil {
				return "", 0, err
			}
		}
	}
	return last, awaits, nil
}

// each are all runs that a filter chooses, the newest first.
func (c *change) each(f store.RunFilter) (all []*run, err error) {
	for f.Limit = pageSize; ; {
		page, err := c.Runs(f)
		if err != nil {
			return nil, err
		}
		for _, row := range page {
			all = append(all, readRun(row))
		}
		if len(page) < pageSize {
			return all, nil
		}
		f.Before = page[pageSize-1].ID
	}
}
