package store

import (
	"context"
	"encoding/json"
	"time"
)

// Blueprint is the definition of an agent that came by the API.
type Blueprint struct {
	Name  string
	Owner string // the principal that has added it
	// Operator says that a principal with that role has written the body.
	Operator bool
	Body     json.RawMessage // may hold secrets
	Changed  time.Time
}

// Blueprints keeps them by name.
type Blueprints interface {
	// Blueprints returns all, in the order of names.
	Blueprints(ctx context.Context) ([]Blueprint, error)
	// Blueprint returns one; ok is false when there is none.
	Blueprint(ctx context.Context, name string) (b Blueprint, ok bool, err error)
	// ChangeBlueprint shows change the blueprint of a name, nil where there is none, and
	// writes what change returns, under that name; nil removes it. It is one transaction.
	// An error of change is returned as it is, and nothing is written.
	ChangeBlueprint(ctx context.Context, name string, change func(*Blueprint) (*Blueprint, error)) error
}
