package control

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
)

// maxTrajectories is how many sessions one stream of trajectories may be of.
const maxTrajectories = 100_000

// Trajectories tells the stories of many sessions, the oldest first, each as Trajectory
// does: the principal's own sessions, or for an operator all. The last step says how
// many there were.
func (c *Sessions) Trajectories(ctx context.Context, who identity.Principal, f SessionFilter) (func(emit func(api.Step) error) error, error) {
	if f.Owner != "" && f.Owner != who.Name {
		if err := access.Need(who, api.RoleOperator); err != nil {
			return nil, err
		}
	}
	ids, err := c.chosen(ctx, who, f)
	if err != nil {
		return nil, err
	}
	return func(emit func(api.Step) error) error {
		told := 0
		for _, id := range slices.Backward(ids) {
			now, ok := c.host.Again(who)
			if !ok {
				return errGone
			}
			story, err := c.Trajectory(ctx, now, id)
			if e := (*api.Error)(nil); errors.As(err, &e) && e.Status == http.StatusNotFound {
				continue // it was so old that it is forgotten since
			}
			if err != nil {
				return err
			}
			err = story(func(step api.Step) error {
				step.Of = id
				return emit(step)
			})
			if err != nil {
				return err
			}
			told++
		}
		return emit(api.Step{Type: api.StepEnd, Sessions: &told})
	}, nil
}

// chosen are the ids of the sessions that a filter chooses of those that a principal may
// read, the newest first.
func (c *Sessions) chosen(ctx context.Context, who identity.Principal, f SessionFilter) (ids []string, err error) {
	in := store.SessionFilter{Closed: f.Closed, Limit: 1000}
	if f.Owner != "" {
		in.Owner = &f.Owner
	} else if !who.Is(api.RoleOperator) {
		in.Owner = &who.Name
	}
	for {
		page, more, err := c.reg.Find(ctx, in)
		if err != nil {
			return nil, err
		}
		for _, s := range page {
			in.Before = s.ID
			if labelled(s.Labels, f.Labels) && access.Uses(who, access.Thing{Owner: s.Owner, Session: s.ID}) {
				ids = append(ids, s.ID)
			}
		}
		switch {
		case len(ids) > maxTrajectories:
			return nil, Invalid("more than %d sessions match; choose fewer by label or owner", maxTrajectories)
		case !more:
			return ids, nil
		case len(page) == 0: // all of them are just ending
			return nil, &api.Error{Kind: api.KindRefused, Status: http.StatusConflict, Retryable: true, RetryAfter: 1, Message: "sessions are being closed; try again"}
		}
	}
}
