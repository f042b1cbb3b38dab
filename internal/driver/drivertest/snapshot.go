package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
)

func (s *Suite) testFreezeStopped(t *testing.T) {
	w := s.world(t)
	m := w.seed(t, "a", driver.Source{})
	snap := m.freeze(t, "empty")
	child := w.open(t, "b", driver.Source{From: &snap})
	child.knows(t, map[string]string{"k": ""})
	child.close(t)
	w.discard(t, snap)
	m.start(t)
	m.put(t, "k", "v")
	m.stop(t)
	snap = m.freeze(t, "snap")
	child = w.open(t, "b", driver.Source{From: &snap})
	child.knows(t, map[string]string{"k": "v"})
	m.start(t)
	m.knows(t, map[string]string{"k": "v"})
	child.close(t)
	m.close(t)
	w.discard(t, snap)
	Empty(t, w.dir)
}

// A server that is called all the time is frozen at one moment: what was
// answered before is there, and of what comes in order there is no gap.
func (s *Suite) testFreezeUnderLoad(t *testing.T) {
	w := s.world(t)
	m := w.open(t, "a", driver.Source{})
	c, cancel := context.WithCancel(ctx(t))
	defer cancel()
	var mu sync.Mutex
	answered := 0
	moved := make(chan struct{}, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			if err := w.put(c, m.p, fmt.Sprint("n", n), "x"); err != nil {
				if c.Err() == nil {
					t.Errorf("put %d: %v", n, err)
				}
				return
			}
			mu.Lock()
			answered = n + 1
			mu.Unlock()
			select {
			case moved <- struct{}{}:
			default:
			}
		}
	})
	for round := range s.times(5, 2) {
		for range 5 {
			<-moved
		}
		mu.Lock()
		least := answered
		mu.Unlock()
		snap := m.freeze(t, fmt.Sprint("snap", round))
		child := w.open(t, fmt.Sprint("child", round), driver.Source{From: &snap})
		w.discard(t, snap)
		there := 0
		for {
			got, err := w.get(ctx(t), child.p, fmt.Sprint("n", there))
			if err != nil {
				t.Fatal(err)
			}
			if got == "" {
				break
			}
			there++
		}
		if there < least {
			t.Errorf("%d were answered, and the child knows %d", least, there)
		}
		child.knows(t, map[string]string{fmt.Sprint("n", there+1): "", fmt.Sprint("n", there+2): ""})
		child.close(t)
	}
	cancel()
	if m.p.link.Stream != nil {
		m.p.link.Stream.Close()
	}
	wg.Wait()
	m.close(t)
}

func (s *Suite) testTwice(t *testing.T) {
	w := s.world(t)
	m := w.open(t, "a", driver.Source{})
	m.put(t, "k", "v")
	snap := m.freeze(t, "snap")
	other := m.freeze(t, "other")
	for range 3 {
		w.discard(t, snap)
	}
	m.stop(t)
	for range 3 {
		if err := w.k.Erase(ctx(t), m.spec); err != nil {
			t.Errorf("erase: %v", err)
		}
	}
	// Neither has touched the snapshot beside it.
	child := w.open(t, "b", driver.Source{From: &other})
	child.knows(t, map[string]string{"k": "v"})
	child.close(t)
	w.discard(t, other)
	Empty(t, w.dir)
	// And the place is free again.
	again := w.open(t, "a", driver.Source{})
	again.knows(t, map[string]string{"k": ""})
	again.close(t)
}

func (s *Suite) testExport(t *testing.T) {
	w := s.world(t)
	m := w.open(t, "a", driver.Source{})
	for n := range 30 {
		m.put(t, fmt.Sprint("k", n), strings.Repeat(fmt.Sprint("v", n), n*n))
	}
	m.put(t, "odd key / .. \u00fc", "line\nbreak \x00 \u2603")
	snap := m.freeze(t, "snap")
	var out bytes.Buffer
	if !m.exports(t, snap, &out) {
		return
	}
	w.discard(t, snap)
	got, err := w.k.Import(ctx(t), m.spec.Server, filepath.Join(w.dir, "imported"), bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatalf("import: %v", err)
	}
	if got.Driver != snap.Driver || got.Carries != snap.Carries || got.Server != m.spec.Server {
		t.Errorf("imported as %+v", got)
	}
	child := w.open(t, "b", driver.Source{From: &got, Take: true})
	for n := range 30 {
		child.knows(t, map[string]string{fmt.Sprint("k", n): strings.Repeat(fmt.Sprint("v", n), n*n)})
	}
	child.knows(t, map[string]string{"odd key / .. \u00fc": "line\nbreak \x00 \u2603"})
	w.discard(t, got)
	child.close(t)
	m.close(t)
	Empty(t, w.dir)
}

// exports exports a snapshot. Where the driver can't, because another service keeps
// what it froze, all is cleared away.
func (m *member) exports(t *testing.T, snap driver.Snapshot, out *bytes.Buffer) bool {
	t.Helper()
	err := m.w.k.Export(ctx(t), snap, out)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		m.w.discard(t, snap)
		m.close(t)
		Empty(t, m.w.dir)
		return false
	case err != nil:
		t.Fatalf("export: %v", err)
	}
	return true
}

func (s *Suite) testImportGarbage(t *testing.T) {
	w := s.world(t)
	m := w.open(t, "a", driver.Source{})
	m.put(t, "k", strings.Repeat("v", 5000))
	snap := m.freeze(t, "snap")
	var out bytes.Buffer
	if !m.exports(t, snap, &out) {
		return
	}
	w.discard(t, snap)
	m.close(t)
	whole := out.Bytes()
	noise := make([]byte, 10_000)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(rnd.Uint32())
	}
	bad := map[string][]byte{
		"nothing": nil, "noise": noise, "zeros": make([]byte, 10_000), "text": []byte("hello\n"),
		"something after the end": append(bytes.Clone(whole), noise...),
	}
	for n := 0; n < len(whole)-2048; n += max(len(whole)/40, 1) { // the end may be padding
		bad[fmt.Sprintf("the first %d of %d bytes", n, len(whole))] = whole[:n]
	}
	for name, b := range bad {
		got, err := w.k.Import(ctx(t), "fs", filepath.Join(w.dir, "imported"), bytes.NewReader(b))
		if err == nil {
			t.Errorf("%s was imported as %+v", name, got)
			w.discard(t, got)
		}
		Empty(t, w.dir)
	}
}

func (s *Suite) testNothingLeft(t *testing.T) {
	w := s.world(t)
	m := w.open(t, "a", driver.Source{})
	m.put(t, "k", strings.Repeat("v", 100_000))
	snap := m.freeze(t, "snap")
	var out bytes.Buffer
	if err := w.k.Export(ctx(t), snap, &out); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("export: %v", err)
	}
	c, cancel := context.WithCancel(context.Background())
	cancel()
	for name, do := range map[string]func() error{
		"seed":           func() error { return w.k.Seed(c, w.spec(t, "no"), driver.Source{From: &snap}) },
		"seed of a last": func() error { return w.k.Seed(c, w.spec(t, "no"), driver.Source{From: &snap, Take: true}) },
		"freeze": func() error {
			_, err := w.k.Freeze(c, m.spec, nil, filepath.Join(w.dir, "no"))
			return err
		},
		"import": func() error {
			_, err := w.k.Import(c, "fs", filepath.Join(w.dir, "no"), bytes.NewReader(out.Bytes()))
			return err
		},
		"export": func() error { return w.k.Export(c, snap, &bytes.Buffer{}) },
		"export to a full disk": func() error {
			return w.k.Export(ctx(t), snap, fullDisk{})
		},
	} {
		switch err := do(); {
		case err != nil:
			Absent(t, filepath.Join(w.dir, "no"))
		case strings.HasPrefix(name, "seed"): // what takes no time may be done all the same
			(&member{w: w, spec: w.spec(t, "no")}).close(t)
		default:
			t.Errorf("%s: it did not fail", name)
		}
	}
	// In the middle, where the driver reports progress.
	c, cancel = context.WithCancel(context.Background())
	defer cancel()
	err := w.k.Seed(c, w.spec(t, "no"), driver.Source{From: &snap, Progress: func(int64, int64) { cancel() }})
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("seed: %v", err)
		}
		Absent(t, filepath.Join(w.dir, "no"))
	} else {
		(&member{w: w, spec: w.spec(t, "no")}).close(t)
	}
	// Neither the state nor the snapshot minds.
	m.knows(t, map[string]string{"k": strings.Repeat("v", 100_000)})
	child := w.open(t, "b", driver.Source{From: &snap})
	child.knows(t, map[string]string{"k": strings.Repeat("v", 100_000)})
	child.close(t)
	w.discard(t, snap)
	m.close(t)
	Empty(t, w.dir)
}

// fullDisk takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }
