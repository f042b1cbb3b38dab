package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
)

// boxKind is the driver whose servers have all that they know in memory.
const boxKind = "sandbox"

// memoryFile is where a state or a snapshot has the memory of a server.
const memoryFile = "memory.json"

type memory struct {
	State  map[string]string `json:"state"`
	Hello  json.RawMessage   `json:"hello"`
	Forked bool              `json:"forked"`
}

// boxes is that driver: it freezes what runs, restores it, lets it rest, and is
// told what to have ready.
type boxes struct {
	*desk
	mu     sync.Mutex
	ready  map[string]int // by the folder of the snapshot
	asked  []string       // "server count", in order
	awaits []string       // the same of what is expected, and "over"
	carry  []string       // what freezes were to carry
	broken error          // why nothing can rest
	denies error          // why nothing can be ready
	unfit  error          // why no memory fits
	stays  error          // why nothing can be exported
}

func (b *boxes) Carries(driver.Spec) (carries, why string) { return driver.CarryMemory, "" }

func (b *boxes) Start(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	var mem memory
	path := filepath.Join(spec.State, memoryFile)
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, &mem)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	b.mu.Lock()
	unfit := b.unfit
	b.mu.Unlock()
	if raw != nil && unfit != nil {
		if !spec.Anew {
			return nil, fmt.Errorf("the memory in its state does not fit here: %w", unfit)
		}
		mem = memory{}
	}
	inst, err := b.desk.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	// What goes on changes, so what is on the disk does not count any more.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	i := inst.(*instance)
	i.mu.Lock()
	if mem.State != nil {
		i.state = mem.State
	}
	i.mu.Unlock()
	return &boxed{i, b, mem}, nil
}

func (b *boxes) Adopt(ctx context.Context, h driver.Handle, log *slog.Logger) (driver.Instance, error) {
	inst, err := b.desk.Adopt(ctx, h, log)
	if err != nil {
		return nil, err
	}
	return &boxed{inst.(*instance), b, memory{}}, nil
}

func (b *boxes) Seed(ctx context.Context, spec driver.Spec, src driver.Source) error {
	if err := b.desk.Seed(ctx, spec, driver.Source{}); err != nil || src.From == nil {
		return err
	}
	var mem memory
	raw, err := os.ReadFile(filepath.Join(src.From.Dir, memoryFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was not running
	}
	if err == nil {
		err = json.Unmarshal(raw, &mem)
	}
	if err != nil {
		return err
	}
	mem.Hello, mem.Forked = src.From.Hello, true
	return b.save(spec.State, mem)
}

func (b *boxes) save(dir string, mem memory) error {
	raw, err := json.Marshal(mem)
	if err != nil {
		return err
	}
	return writeWhole(filepath.Join(dir, memoryFile), raw)
}

func (b *boxes) Freeze(ctx context.Context, spec driver.Spec, inst driver.Instance, dir string) (driver.Snapshot, error) {
	b.mu.Lock()
	b.carry = append(b.carry, spec.Carry)
	b.mu.Unlock()
	if spec.Session != "" {
		b.m.t.Errorf("a snapshot of %s belongs to session %s", spec.Server, spec.Session)
	}
	var plain driver.Instance
	i, runs := inst.(*boxed)
	if runs {
		plain = i.instance
	}
	snap, err := b.desk.Freeze(ctx, spec, plain, dir)
	if err != nil {
		return snap, err
	}
	snap.Carries = driver.CarryMemory
	if !runs {
		raw, err := os.ReadFile(filepath.Join(spec.State, memoryFile))
		if err != nil {
			return snap, nil // nothing ran, and nothing rests
		}
		var mem memory
		if err := json.Unmarshal(raw, &mem); err != nil {
			return snap, err
		}
		snap.Hello = mem.Hello
		return snap, b.save(dir, mem)
	}
	i.proc.mu.Lock()
	defer i.proc.mu.Unlock()
	return snap, b.save(dir, memory{State: i.state})
}

func (b *boxes) CheckExport(context.Context, driver.Snapshot) error { return b.stays }

func (b *boxes) Discard(ctx context.Context, s driver.Snapshot) error {
	b.mu.Lock()
	if n := b.ready[s.Dir]; n > 0 {
		b.m.t.Errorf("a snapshot of %s is discarded and %d are to be ready of it", s.Server, n)
	}
	b.mu.Unlock()
	return b.desk.Discard(ctx, s)
}

func (b *boxes) Ready(spec driver.Spec, from driver.Snapshot, count int) error {
	if spec.Session != "" || spec.State != "" || spec.Dir != "" {
		b.m.t.Errorf("what is to be ready has a session: %+v", spec)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.denies != nil && count > 0 {
		b.asked = append(b.asked, "denied")
		return b.denies
	}
	if b.ready == nil {
		b.ready = make(map[string]int)
	}
	b.ready[from.Dir] = count
	b.asked = append(b.asked, fmt.Sprintf("%s %d", spec.Server, count))
	return nil
}

func (b *boxes) Expect(spec driver.Spec, count int) (over func()) {
	if spec.Session != "" || spec.State != "" || spec.Dir != "" {
		b.m.t.Errorf("what is expected has a session: %+v", spec)
	}
	b.expect(fmt.Sprintf("%s %d", spec.Server, count))
	return func() { b.expect("over") }
}

func (b *boxes) expect(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.awaits = append(b.awaits, what)
}

// expected is what was said about it.
func (b *boxes) expected() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.awaits, ", ")
}

func (b *boxes) Pools() []driver.Pool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, c := range b.ready {
		n += c
	}
	return []driver.Pool{{Server: "box", Slots: 2, Ready: n, Live: 3, Parked: 1}}
}

// isReady is what is to be ready, all together.
func (b *boxes) isReady() int { return b.Pools()[0].Ready }

func (b *boxes) said() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.asked, ", ")
}

func (b *boxes) carried() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(slices.Compact(slices.Clone(b.carry)), " ")
}

type boxed struct {
	*instance
	b   *boxes
	mem memory
}

func (i *boxed) Greeted() (json.RawMessage, bool) { return i.mem.Hello, i.mem.Forked }

func (i *boxed) Suspend(ctx context.Context, hello json.RawMessage) error {
	if i.b.broken != nil {
		return i.b.broken
	}
	if len(hello) == 0 {
		i.m.t.Errorf("%s is suspended without its hello", i.spec.Server)
	}
	if i.crashed() {
		return errDead
	}
	i.proc.mu.Lock()
	err := i.b.save(i.spec.State, memory{State: i.state, Hello: hello})
	i.proc.mu.Unlock()
	if err != nil {
		return err
	}
	return i.Stop(ctx)
}

var (
	_ driver.Preparer  = (*boxes)(nil)
	_ driver.Suspender = (*boxed)(nil)
)

// boxWorld is a world with that driver.
func boxWorld(t *testing.T, yaml string) *world {
	t.Helper()
	return makeWorld(t, yaml, func(w *world) { w.boxes = &boxes{} })
}

// greetings is how many handshakes there were with all that ever ran of a server.
func (m *machine) greetings(server string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, p := range m.procs {
		if p.spec.Server == server {
			n += len(p.hello())
		}
	}
	return n
}
