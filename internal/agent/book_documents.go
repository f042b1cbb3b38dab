package agent

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
)

// Documents are the blueprints of the API in a store.
func Documents(s store.Blueprints) blueprint.Documents { return documents{s} }

type documents struct{ s store.Blueprints }

func (d documents) Blueprints(ctx context.Context) ([]blueprint.Document, error) {
	all, err := d.s.Blueprints(ctx)
	list := make([]blueprint.Document, len(all))
	for i, b := range all {
		list[i] = blueprint.Document(b)
	}
	return list, err
}

func (d documents) Blueprint(ctx context.Context, name string) (blueprint.Document, bool, error) {
	b, ok, err := d.s.Blueprint(ctx, name)
	return blueprint.Document(b), ok, err
}

func (d documents) ChangeBlueprint(ctx context.Context, name string, change func(*blueprint.Document) (*blueprint.Document, error)) error {
	return d.s.ChangeBlueprint(ctx, name, func(was *store.Blueprint) (*store.Blueprint, error) {
		to, err := change((*blueprint.Document)(was))
		return (*store.Blueprint)(to), err
	})
}

// writes refuses a caller that may write no blueprint.
func writes(who identity.Principal) error {
	if who.Session != "" {
		return refused(http.StatusForbidden, false, "this token is for one session, and changes no agents; use one of yours")
	}
	return access.Need(who, api.RoleUser)
}

// owns refuses a document of another principal.
func owns(who identity.Principal, d blueprint.Document) error {
	if access.Uses(who, access.Thing{Owner: d.Owner}) {
		return nil
	}
	return refused(http.StatusForbidden, false, "agent "+d.Name+" is another principal's, and only its owner and operators read, change or delete its blueprint; choose another name, or ask one of them")
}

// Document returns a blueprint of the API as it was written. It may have secrets, so that it
// is for those who may change it.
func (b *Book) Document(ctx context.Context, who identity.Principal, name string) (json.RawMessage, error) {
	if err := writes(who); err != nil {
		return nil, err
	}
	d, err := b.o.Store.Document(ctx, name)
	if err != nil {
		return nil, faultOf(name, err)
	}
	return d.Body, owns(who, d)
}

// PutAgent keeps a blueprint of the API, under a name that no file has. It belongs to the
// caller that adds it; isNew says that there was none.
func (b *Book) PutAgent(ctx context.Context, who identity.Principal, name string, body json.RawMessage) (out api.Agent, isNew bool, err error) {
	if err := writes(who); err != nil {
		return out, false, err
	}
	operator := who.Is(api.RoleOperator)
	d := blueprint.Document{Name: name, Owner: who.Name, Operator: operator, Body: body, Changed: time.Now().UTC()}
	p, err := b.o.Store.Put(ctx, d, func(p blueprint.Blueprint, was *blueprint.Document) error {
		isNew = was == nil
		if was != nil {
			if err := owns(who, *was); err != nil {
				return err
			}
		}
		return privileged(p, operator)
	})
	if err != nil {
		return out, false, faultOf(name, err)
	}
	b.o.Log.Info("blueprint of an agent written", "agent", name, "principal", who.Name)
	return b.listed(p, nil, b.known(who)), isNew, nil
}

// DeleteAgent forgets a blueprint of the API. Runs of it go on; its sessions can't be
// resumed any more.
func (b *Book) DeleteAgent(ctx context.Context, who identity.Principal, name string) error {
	if err := writes(who); err != nil {
		return err
	}
	if err := b.o.Store.Delete(ctx, name, func(was blueprint.Document) error { return owns(who, was) }); err != nil {
		return faultOf(name, err)
	}
	b.o.Log.Info("blueprint of an agent deleted", "agent", name, "principal", who.Name)
	return nil
}
