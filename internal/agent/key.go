package agent

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
)

// keyAge is how long a key is remembered.
const keyAge = 24 * time.Hour

// runID is the id of the run of an order. That of an order with a key comes from the key,
// so that a repeated order finds its run.
func (s *Service) runID(ctx context.Context, o order) (id string, old *run, err error) {
	return keyedID(o, func(id string) (store.Run, bool, error) { return s.o.Store.Run(ctx, id) })
}

// keyed is the run that an order has made before; nil for none.
func (c *change) keyed(o order) (*run, error) {
	if o.key == "" {
		return nil, nil
	}
	_, old, err := keyedID(o, c.Run)
	return old, err
}

func keyedID(o order, find func(id string) (store.Run, bool, error)) (id string, old *run, err error) {
	if o.key == "" {
		return newID("run_"), nil, nil
	}
	for i := range 16 {
		id = "run_" + digest(fmt.Sprint(i), o.key)[:12]
		row, ok, err := find(id)
		if err != nil || !ok {
			return id, nil, err
		}
		r := readRun(row)
		if r.d.Key != o.key || time.Since(r.Created) > keyAge {
			continue // another key, or the same one in its last life
		}
		if r.d.Request != o.request {
			return "", nil, control.Invalid("the %s was used for another request", control.HeaderKey)
		}
		return id, r, nil
	}
	return "", nil, control.Invalid("the %s has been used too often; take another", control.HeaderKey)
}

// shown is a run that an order has made before; empty for none.
func shown(r *run) api.Run {
	if r == nil {
		return api.Run{}
	}
	return r.api()
}

func newID(prefix string) string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}

// IsRun reports whether a word is the id of a run, and not the name that a user has given to
// a token.
func IsRun(id string) bool { return len(id) == len("run_")+12 && strings.HasPrefix(id, "run_") }

func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s,", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// keyOwner is whose a key is: what an agent asks for is not its owner's to find.
func keyOwner(p identity.Principal) string {
	if p.Session != "" {
		return "session:" + p.Session
	}
	return p.Name
}
