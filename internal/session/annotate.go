package session

import (
	"context"
	"fmt"
	"net/http"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/upstream/record"
)

// Annotate writes an annotation of a principal into the journal, among the calls of a
// session that is open or closed. Mark is that of the request, where it has a key: of
// annotations with the same mark a trajectory has the first.
func (r *Registry) Annotate(ctx context.Context, principal, id string, a api.NewAnnotation, mark string) (out api.Annotation, err error) {
	if r.o.Record.Journal == nil {
		return out, &api.Error{
			Kind: api.KindRefused, Status: http.StatusConflict,
			Message: "this gateway keeps no journal, and an annotation is an entry of it; journal.mode in the config switches it on",
		}
	}
	if a.Call != "" {
		if err := r.hasCall(ctx, id, a.Call); err != nil {
			return out, err
		}
	}
	e, err := r.o.Record.Annotate(principal, id, a, mark)
	if err != nil {
		return out, err
	}
	return api.Annotation{ID: e.ID, At: e.At.UTC(), Session: id, Call: a.Call, Reward: a.Reward}, nil
}

// hasCall refuses what is no call in the trajectory of a session.
func (r *Registry) hasCall(ctx context.Context, id, call string) error {
	seq, ok := store.CallSeq(call)
	if !ok {
		return &api.Error{Kind: api.KindInvalid, Message: fmt.Sprintf("call %q is no id of a call; one looks like %s", clipped(call), store.CallID(42))}
	}
	line, err := r.line(ctx, id)
	if err != nil {
		return err
	}
	for i := len(line) - 1; i >= 0; i-- {
		if i+1 < len(line) { // an ancestor, of which the part before the fork counts
			end, err := r.openingOf(ctx, line[i+1].ID)
			if err != nil {
				return err
			}
			if end != nil && seq > end.Call {
				continue
			}
		}
		e, ok, err := r.o.Record.Journal.Of(ctx, line[i].ID, seq)
		if err != nil {
			return fmt.Errorf("looking for call %s: %w", call, err)
		}
		late := !line[i].Closed.IsZero() && e.At.After(line[i].Closed)
		if ok && !late && e.Method != driver.MethodNetwork && e.Method != record.MethodAnnotation {
			return nil
		}
	}
	return &api.Error{
		Kind: api.KindInvalid, Status: http.StatusNotFound,
		Message: fmt.Sprintf("call %s is not one of session %s, nor of an ancestor before the fork; its trajectory lists them", call, id),
	}
}

func clipped(s string) string { return s[:min(len(s), 64)] }
