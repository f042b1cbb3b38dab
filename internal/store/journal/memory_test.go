package journal

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/storetest"
)

// memory is an index that is quick to open and to harm, and which outlives the
// journal as a file would. It passes the suite of the real one.
type memory struct {
	mu    sync.Mutex
	calls map[int64]store.Call
}

func TestMemoryIsAnIndex(t *testing.T) {
	places := make(map[string]*memory)
	storetest.RunCalls(t, func(_ testing.TB, place string) (store.Calls, func()) {
		if places[place] == nil {
			places[place] = new(memory)
		}
		return places[place], func() {}
	})
}

func (m *memory) PutCalls(ctx context.Context, calls []store.Call) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls == nil {
		m.calls = make(map[int64]store.Call)
	}
	for _, c := range calls {
		if _, ok := m.calls[c.Seq]; !ok {
			c.ID = store.CallID(c.Seq)
			m.calls[c.Seq] = c
		}
	}
	return ctx.Err()
}

func (m *memory) Calls(ctx context.Context, f store.CallFilter) ([]store.Call, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []store.Call
	for _, c := range m.calls {
		if f.Chooses(&c) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b store.Call) int { return cmp.Compare(b.Seq, a.Seq) })
	if f.Limit <= 0 {
		f.Limit = 100
	}
	return all[:min(f.Limit, len(all))], ctx.Err()
}

func (m *memory) LastCall(ctx context.Context) (last store.Call, ok bool, err error) {
	all, err := m.Calls(ctx, store.CallFilter{Limit: 1})
	if len(all) == 0 {
		return last, false, err
	}
	return all[0], true, err
}

func (m *memory) DropCalls(ctx context.Context, below int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.calls, func(_ int64, c store.Call) bool { return c.Segment < below })
	return ctx.Err()
}

func (m *memory) clone() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memory{calls: maps.Clone(m.calls)}
}
