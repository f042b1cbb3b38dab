package session

import (
	"context"
	"fmt"
	"net/http"
	"regexp"

	"github.com/tine-mcp/tine/api"
)

// givenID is what a session may be called by who opens it.
var givenID = regexp.MustCompile(`^ses_[0-9a-f]{12,64}$`)

// NewID makes an id for OpenAs.
func NewID() string { return newID() }

// OpenAs opens a session with an id that was chosen before, or returns the one that is
// open: the same id twice is the same session, where its owner and its creation are the
// same. opened says that it was not open before. A session that was closed is not opened
// again.
func (r *Registry) OpenAs(ctx context.Context, o OpenOptions) (s *Session, opened bool, err error) {
	if !givenID.MatchString(o.ID) {
		return nil, false, &api.Error{Kind: api.KindInvalid, Message: fmt.Sprintf("%q can't be the id of a session; it is ses_ and 12 to 64 hexadecimal digits", clipped(o.ID))}
	}
	done, err := r.turnOf(ctx, o.ID)
	if err != nil {
		return nil, false, err
	}
	defer done()
	if s := r.Get(o.ID); s != nil {
		return s, false, s.isThatOf(o)
	}
	if err := r.isFree(ctx, o.ID); err != nil {
		return nil, false, err
	}
	s, _, err = r.OpenSession(ctx, o)
	return s, err == nil, err
}

// turnOf waits until no other request opens a session with an id, and keeps others out
// until done.
func (r *Registry) turnOf(ctx context.Context, id string) (done func(), err error) {
	for {
		r.mu.Lock()
		other := r.beginning[id]
		if other == nil {
			over := make(chan struct{})
			r.beginning[id] = over
			r.mu.Unlock()
			return func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				delete(r.beginning, id)
				close(over)
			}, nil
		}
		r.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// isThatOf refuses a session that is not what a request would open.
func (s *Session) isThatOf(o OpenOptions) error {
	f := s.known()
	if f.Listed == (o.List != nil) && s.Owner == o.Owner.Name && sameJSON(s.pinnedOwner, o.Owner.Pinned) && f.Creation == o.Creation {
		return nil
	}
	return idTaken(s.ID)
}

func idTaken(id string) error {
	return &api.Error{Kind: api.KindInvalid, Status: http.StatusConflict, Message: fmt.Sprintf("there is a session %s already, of another owner or another request; choose another id", id)}
}

// isFree refuses the id of a session that is recorded.
func (r *Registry) isFree(ctx context.Context, id string) error {
	rec, known, err := r.o.Shared.Session(ctx, id)
	switch {
	case err != nil:
		return fmt.Errorf("looking for session %s: %w", id, err)
	case !known:
		return nil
	case !rec.Closed.IsZero():
		return &api.Error{Kind: api.KindLost, Status: http.StatusGone, Message: fmt.Sprintf("session %s was closed; its id is not used again", id)}
	}
	if u, ok := r.Unserved(id); ok {
		return &api.Error{Kind: api.KindRefused, Status: http.StatusConflict, Message: "session " + id + " is not served: " + u.Why + "; " + u.Mend}
	}
	return idTaken(id)
}
