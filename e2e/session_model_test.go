//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"

	"github.com/tine-mcp/tine/client"
)

// holding is what a session holds: values by key by server.
type holding map[string]map[string]string

func (h holding) clone() holding {
	c := holding{}
	for server, all := range h {
		c[server] = maps.Clone(all)
	}
	return c
}

// A twin is what a session should be.
type twin struct {
	id    string
	holds holding
}

// A frozenTwin is what a snapshot should be.
type frozenTwin struct {
	id      string
	session string // whose it is; empty for one that was imported
	holds   holding
}

// A model is what a gateway should hold, in plain maps.
type model struct {
	c       *client.Client
	rng     *rand.Rand
	shelves []*shelf
	words   int
	live    []*twin
	frozen  []*frozenTwin
}

// An attempt is one change: a request, what it does to the model, and how to find
// out whether it happened when the gateway was killed meanwhile.
type attempt struct {
	text   string
	do     func(context.Context) error
	done   func()
	settle func(context.Context) error
}

// word makes a word that was never used before.
func (m *model) word(kind string) string {
	m.words++
	return fmt.Sprintf("%s%d", kind, m.words)
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

// propose chooses what to do next. It returns the zero attempt where the choice
// makes no sense now.
func (m *model) propose() attempt {
	if len(m.live) == 0 {
		return m.open()
	}
	switch n := m.rng.IntN(100); {
	case n < 50:
		return m.change()
	case n < 62:
		return m.fork()
	case n < 71:
		return m.snapshot()
	case n < 80:
		return m.rewind()
	case n < 86:
		return m.open()
	case n < 94:
		return m.close()
	case n < 97:
		return m.deleteSnapshot()
	default:
		return m.carry()
	}
}

// maxLive bounds the sessions, so that comparing them stays quick.
const maxLive = 10

// compare holds one session against its twin.
func (m *model) compare(ctx context.Context, s *twin) error {
	var errs []error
	for _, shelf := range m.shelves {
		got, err := shelf.all(ctx, shelf.on(m.c, s.id))
		if err != nil {
			errs = append(errs, err)
		} else if d := differ(got, s.holds[shelf.server]); d != "" {
			errs = append(errs, fmt.Errorf("%s of %s:%s", shelf.server, s.id, d))
		}
	}
	return errors.Join(errs...)
}

// compareAll holds all sessions and snapshots against the model.
func (m *model) compareAll(ctx context.Context) error {
	all, err := openSessions(ctx, m.c, client.SessionQuery{})
	if err != nil {
		return err
	}
	results := make(chan error, len(m.live))
	for _, s := range m.live {
		if _, ok := all[s.id]; !ok {
			results <- fmt.Errorf("session %s is missing", s.id)
			continue
		}
		delete(all, s.id)
		go func() { results <- m.compare(ctx, s) }()
	}
	for range m.live {
		err = errors.Join(err, <-results)
	}
	for id := range all {
		err = errors.Join(err, fmt.Errorf("session %s should not be there", id))
	}
	there := map[string]bool{}
	for s, lerr := range m.c.AllSnapshots(ctx, client.SnapshotQuery{}) {
		if lerr != nil {
			return errors.Join(err, lerr)
		}
		there[s.ID] = true
	}
	for _, f := range m.frozen {
		if !there[f.id] {
			err = errors.Join(err, fmt.Errorf("snapshot %s is missing", f.id))
		}
		delete(there, f.id)
	}
	for id := range there {
		err = errors.Join(err, fmt.Errorf("snapshot %s should not be there", id))
	}
	return err
}
