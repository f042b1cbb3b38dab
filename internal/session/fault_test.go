package session_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"io/fs"

	"github.com/tine-mcp/tine/internal/store"
)

var (
	errDead   = errors.New("this gateway is dead")
	errFailed = errors.New("the disk is full")
)

// A fault is something that happens at a point: what the machine or the store is
// about to do, or has just done, such as "seed own" and "seeded own", or "put
// sessions" and "did put sessions".
type fault struct {
	point string
	after int // how often the point is passed before
	do    func(context.Context) error
}

// at passes a point.
func (m *machine) at(ctx context.Context, gen int, point string) error {
	m.mu.Lock()
	if gen != m.gen {
		m.mu.Unlock()
		return errDead
	}
	m.points = append(m.points, point)
	var do func(context.Context) error
	for i, f := range m.faults {
		if f.point != point && (f.point != anyStep || finished(point)) {
			continue
		}
		if f.after > 0 {
			f.after--
			continue
		}
		do = f.do
		m.faults = slices.Delete(m.faults, i, i+1)
		break
	}
	m.mu.Unlock()
	if do == nil {
		return nil
	}
	return do(ctx)
}

// anyStep is every point but those behind which nothing lasting comes before the
// next one.
const anyStep = ""

func finished(point string) bool {
	for _, p := range []string{"seeded ", "froze ", "did erase ", "did discard ", "did delete handle", "did put events"} {
		if strings.HasPrefix(point, p) {
			return true
		}
	}
	return false
}

func (m *machine) generation() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gen
}

// working lets a gateway change the disk until done is called.
func (m *machine) working(gen int) (done func(), err error) {
	m.disk.RLock()
	if m.generation() != gen {
		m.disk.RUnlock()
		return nil, errDead
	}
	return m.disk.RUnlock, nil
}

func (m *machine) on(point string, after int, do func(context.Context) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = append(m.faults, &fault{point, after, do})
}

// fail makes a point fail after so many times.
func (m *machine) fail(point string, after int) {
	m.on(point, after, func(context.Context) error { return errFailed })
}

// block makes a caller that comes to a point wait there until it is let on, and
// says when it is there.
func (m *machine) block(point string, after int) (there <-chan struct{}, letOn func()) {
	reached, free := make(chan struct{}), make(chan struct{})
	m.on(point, after, func(ctx context.Context) error {
		close(reached)
		select {
		case <-free:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return reached, sync.OnceFunc(func() { close(free) })
}

// forgive takes all faults back.
func (m *machine) forgive() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = nil
}

// passed counts how often a point was passed.
func (m *machine) passed(point string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, p := range m.points {
		if p == point {
			n++
		}
	}
	return n
}

// dieAt kills the gateway when it passes a point for the nth time from now: nothing that
// it does afterwards counts. crashed tells whether it came so far.
func (w *world) dieAt(point string, n int) (crashed func() bool) {
	died := false
	w.m.on(point, n, func(context.Context) error {
		w.m.disk.Lock()
		defer w.m.disk.Unlock()
		w.m.crash()
		died = true
		if err := copyAsIs(w.dir+".then", w.dir); err != nil {
			w.t.Error(err)
		}
		return errDead
	})
	return func() bool {
		w.m.disk.Lock()
		defer w.m.disk.Unlock()
		return died
	}
}

// copyAsIs copies a folder while the gateway may remove things in it: what is
// gone when it is come to is not in the copy. What says that a folder may be
// removed is removed last, so it is copied first.
func copyAsIs(to, from string) error {
	return errors.Join(copySome(to, from, true), copySome(to, from, false))
}

func copySome(to, from string, marks bool) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		at := filepath.Join(to, rel)
		switch {
		case marks != strings.HasPrefix(d.Name(), "~s"):
			if d.IsDir() && !marks {
				return os.MkdirAll(at, 0o700)
			}
			return nil
		case marks:
			if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
				return err
			}
		case d.IsDir():
			return os.MkdirAll(at, 0o700)
		case d.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			if err != nil {
				return nil
			}
			return os.Symlink(link, at)
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return os.WriteFile(at, b, 0o600)
		}
		return os.WriteFile(at, b, info.Mode().Perm())
	})
}

// rise is the start of the next gateway on what the dead one left.
func (w *world) rise(yaml string) {
	w.t.Helper()
	w.Registry.Close(context.Background(), true)
	w.closeStores()
	if err := os.RemoveAll(w.dir); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(w.dir+".then", w.dir); err != nil {
		w.t.Fatal(err)
	}
	// The next one makes its own index.
	_ = os.Remove(filepath.Join(w.dir, "tine.db-shm"))
	w.open(yaml)
}

// tap is the store of one gateway. Each write passes a point before and after.
type tap struct {
	store.Store
	m   *machine
	gen int
}

func (s *tap) write(ctx context.Context, what string, do func() error) error {
	if err := s.m.at(ctx, s.gen, what); err != nil {
		return err
	}
	done, err := s.m.working(s.gen)
	if err != nil {
		return err
	}
	err = do()
	done()
	if err != nil {
		return err
	}
	return s.m.at(ctx, s.gen, "did "+what)
}

func (s *tap) PutSessions(ctx context.Context, all ...store.Session) error {
	return s.write(ctx, "put sessions", func() error { return s.Store.PutSessions(ctx, all...) })
}

func (s *tap) DeleteSession(ctx context.Context, id string) error {
	return s.write(ctx, "delete session", func() error { return s.Store.DeleteSession(ctx, id) })
}

func (s *tap) TouchSessions(ctx context.Context, used map[string]time.Time) error {
	done, err := s.m.working(s.gen)
	if err != nil {
		return err
	}
	defer done()
	return s.Store.TouchSessions(ctx, used)
}

func (s *tap) PutEvents(ctx context.Context, all ...store.Event) error {
	return s.write(ctx, "put events", func() error { return s.Store.PutEvents(ctx, all...) })
}

func (s *tap) PutSnapshot(ctx context.Context, snap store.Snapshot) error {
	return s.write(ctx, "put snapshot", func() error { return s.Store.PutSnapshot(ctx, snap) })
}

func (s *tap) DeleteSnapshot(ctx context.Context, id string) error {
	return s.write(ctx, "delete snapshot", func() error { return s.Store.DeleteSnapshot(ctx, id) })
}

func (s *tap) PutHandle(ctx context.Context, h store.Handle) error {
	return s.write(ctx, "put handle", func() error { return s.Store.PutHandle(ctx, h) })
}

func (s *tap) DeleteHandle(ctx context.Context, key string) error {
	return s.write(ctx, "delete handle", func() error { return s.Store.DeleteHandle(ctx, key) })
}

// left lists what lies in the folders of sessions and snapshots, two levels
// deep, marks and lists of files left out.
func (w *world) left() []string {
	w.t.Helper()
	out := []string{}
	for _, pattern := range []string{"sessions/*", "sessions/*/*", "snapshots/*", "snapshots/*/*"} {
		found, err := filepath.Glob(filepath.Join(w.dir, filepath.FromSlash(pattern)))
		if err != nil {
			w.t.Fatal(err)
		}
		for _, path := range found {
			rel, err := filepath.Rel(w.dir, path)
			if err != nil {
				w.t.Fatal(err)
			}
			rel = filepath.ToSlash(rel)
			record := strings.HasSuffix(rel, "/~session") || strings.HasSuffix(rel, "/~session.gone") || strings.HasSuffix(rel, "/~snapshot") || strings.HasSuffix(rel, "/~sums")
			if !strings.HasPrefix(rel, "sessions/shared") && !strings.HasSuffix(rel, "~whole") && !record {
				out = append(out, rel)
			}
		}
	}
	slices.Sort(out)
	return out
}

// layersLeft is how many files of layers there are.
func (w *world) layersLeft() int {
	w.t.Helper()
	found, err := filepath.Glob(filepath.Join(w.dir, "layers", "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	return len(found)
}
