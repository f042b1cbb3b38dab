package workspace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/layer"
)

// sample makes a directory with all there can be in one.
func sample(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "template")
	for _, d := range []string{"", "bin", "src/deep/er", "empty"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{
		"README": "hello", "src/a.go": "package a", "src/deep/er/x": "", "src/naïve": "é",
		"big": strings.Repeat("0123456789", 3*chunkSize/10),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "bin/run"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"link": "src/a.go", "src/up": "../README", "out": "/etc/passwd", "dangling": "no"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "empty"), 0o500); err != nil {
		t.Fatal(err)
	}
	then := time.Date(2020, 2, 3, 4, 5, 6, 700, time.UTC)
	for _, name := range []string{"README", "src/deep", "."} {
		if err := os.Chtimes(filepath.Join(dir, name), then, then); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// times are when the files of an FS were modified.
func times(t testing.TB, f FS) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := walkFS(t.Context(), f, func(name string, info Info) error {
		if info.Target == "" { // package os has no way to set a link's
			all[name] = info.Modified.UTC().Format(time.RFC3339Nano)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSeedEitherKind takes one template through every kind of workspace, frozen
// and archived in between.
func TestSeedEitherKind(t *testing.T) {
	template := sample(t)
	src, err := openFolder(template)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	want, when := contents(t, src), times(t, src)
	ctx := t.Context()
	for _, first := range []bool{false, true} {
		for _, second := range []bool{false, true} {
			t.Run(fmt.Sprintf("folder %v, folder %v", first, second), func(t *testing.T) {
				dir := t.TempDir()
				s := newStore(t, dir, Options{})
				check := func(what string, f FS) {
					t.Helper()
					sameContents(t, what, contents(t, f), want)
					sameContents(t, what, times(t, f), when)
				}
				var done, total int64
				a := filepath.Join(dir, "a")
				f := open(t, s, a, Seed{Folder: first, Template: template, Progress: func(d, t int64) { done, total = d, t }})
				check("from the template", f)
				if done == 0 || done != total {
					t.Errorf("progress ended at %d of %d", done, total)
				}
				frozen, err := s.Freeze(ctx, a, filepath.Join(dir, "frozen"))
				if err != nil {
					t.Fatal(err)
				}
				if frozen.Size < 3*chunkSize {
					t.Errorf("frozen, it has %d bytes", frozen.Size)
				}
				mustWrite(t, f, "README", "the parent goes on")
				b := open(t, s, filepath.Join(dir, "b"), Seed{Folder: second, From: &frozen})
				check("forked", b)

				var archive bytes.Buffer
				if err := s.Export(ctx, frozen, &archive); err != nil {
					t.Fatal(err)
				}
				imported, err := s.Import(ctx, filepath.Join(dir, "imported"), &archive)
				if err != nil {
					t.Fatal(err)
				}
				check("imported", open(t, s, filepath.Join(dir, "c"), Seed{Folder: second, From: &imported}))

				mustWrite(t, b, "src/a.go", "the child goes on")
				if got, err := read(f, "src/a.go"); err != nil || got != "package a" {
					t.Errorf("the parent sees %q, %v", got, err)
				}
				check("taken", open(t, s, filepath.Join(dir, "d"), Seed{Folder: second, From: &frozen, Take: true}))
				for range 2 {
					for _, fr := range []Frozen{frozen, imported} {
						if err := s.Discard(ctx, fr); err != nil {
							t.Errorf("discard: %v", err)
						}
					}
				}
				check("after it was discarded", open(t, s, filepath.Join(dir, "d"), Seed{}))
				if _, err := os.Stat(filepath.Join(dir, "frozen")); !missing(err) {
					t.Errorf("a discarded folder is still there: %v", err)
				}
			})
		}
	}
}

// onDisk counts the files of the layers and their bytes.
func onDisk(t testing.TB, dir string) (files int, size int64) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "layers"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			files++
			size += info.Size()
		}
	}
	return files, size
}

func TestForkCostsNoSpace(t *testing.T) {
	for _, size := range []int{10, 20 * chunkSize} {
		dir := t.TempDir()
		s := newStore(t, dir, Options{})
		at := filepath.Join(dir, "0")
		mustWrite(t, open(t, s, at, Seed{}), "big", strings.Repeat("x", size))
		_, before := onDisk(t, dir)
		for i := range 50 {
			next := filepath.Join(dir, fmt.Sprint(i+1))
			frozen, err := s.Freeze(t.Context(), at, filepath.Join(dir, fmt.Sprint("frozen", i)))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Seed(t.Context(), next, Seed{From: &frozen}); err != nil {
				t.Fatal(err)
			}
			if err := s.Discard(t.Context(), frozen); err != nil {
				t.Fatal(err)
			}
			at = next
		}
		files, after := onDisk(t, dir)
		if files != 1 || after != before {
			t.Errorf("50 forks of %d bytes: %d files, %d bytes more", size, files, after-before)
		}
		if n, err := s.Size(at); err != nil || n != int64(size) {
			t.Errorf("the last has %d bytes, %v", n, err)
		}
	}
}

func TestForksOfForks(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir, Options{})
	ctx := t.Context()
	var all []FS
	var at []string
	fork := func(from int) {
		seed := Seed{}
		name := filepath.Join(dir, fmt.Sprint("w", len(all)))
		if from >= 0 {
			frozen, err := s.Freeze(ctx, at[from], name+"-frozen")
			if err != nil {
				t.Fatal(err)
			}
			defer s.Discard(ctx, frozen)
			seed.From = &frozen
		}
		all, at = append(all, open(t, s, name, seed)), append(at, name)
	}
	// Each world is its own history: what it had at the fork, then its own.
	want := [][]string{nil}
	fork(-1)
	for i := range 40 {
		world := i * 7 % len(all)
		mustWrite(t, all[world], fmt.Sprint("f", i), fmt.Sprint(i))
		want[world] = append(want[world], fmt.Sprint("f", i))
		fork(world)
		want = append(want, append([]string{}, want[world]...))
	}
	for i, f := range all {
		list, err := f.ReadDir(".")
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, info := range list {
			got[info.Name] = true
		}
		if len(got) != len(want[i]) {
			t.Errorf("world %d has %v, want %v", i, got, want[i])
		}
		for _, name := range want[i] {
			if content, err := read(f, name); err != nil || content != name[1:] {
				t.Errorf("world %d: %s is %q, %v", i, name, content, err)
			}
		}
	}
	for _, dir := range at {
		if err := s.Erase(ctx, dir); err != nil {
			t.Error(err)
		}
		if err := s.Erase(ctx, dir); err != nil {
			t.Error("twice: ", err)
		}
		if _, err := os.Stat(dir); !missing(err) {
			t.Error("an erased workspace has left its folder")
		}
	}
	if files, _ := onDisk(t, dir); files != 0 {
		t.Errorf("%d layers are left", files)
	}
	if err := write(all[0], "x", "x"); class(err) != "closed" {
		t.Errorf("writing to an erased workspace: %v", err)
	}
}

func TestShared(t *testing.T) {
	for _, folder := range []bool{false, true} {
		dir := t.TempDir()
		s := newStore(t, dir, Options{})
		at := filepath.Join(dir, "w")
		if _, err := s.Open(at); !missing(err) {
			t.Errorf("opened nothing: %v", err)
		}
		if err := s.Seed(t.Context(), at, Seed{Folder: folder}); err != nil {
			t.Fatal(err)
		}
		if err := s.Seed(t.Context(), at, Seed{Folder: !folder}); class(err) != "exists" {
			t.Errorf("seeded twice: %v", err)
		}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				w, err := s.Open(at)
				if err != nil {
					t.Error(err)
					return
				}
				defer w.Close()
				if err := write(w.FS(), fmt.Sprint(i), "x"); err != nil {
					t.Error(err)
				}
				if (w.Dir() != "") != folder || (w.Kind() == KindFolder) != folder {
					t.Errorf("kind %s, folder %q", w.Kind(), w.Dir())
				}
				w.Close()
			})
		}
		wg.Wait()
		if len(s.open) != 0 {
			t.Errorf("%d are still open", len(s.open))
		}
		if list, err := open(t, s, at, Seed{}).ReadDir("."); err != nil || len(list) != 20 {
			t.Errorf("%d files, %v", len(list), err)
		}
	}
}

func TestTemplateOnce(t *testing.T) {
	dir, template := t.TempDir(), sample(t)
	s := newStore(t, dir, Options{})
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			if err := s.Seed(t.Context(), filepath.Join(dir, fmt.Sprint(i)), Seed{Template: template}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if files, size := onDisk(t, dir); files != 1 || size > 4*chunkSize {
		t.Errorf("ten workspaces from one template: %d layers of %d bytes", files, size)
	}
	for i := range 10 {
		if err := s.Erase(t.Context(), filepath.Join(dir, fmt.Sprint(i))); err != nil {
			t.Error(err)
		}
	}
	if files, _ := onDisk(t, dir); files != 1 {
		t.Error("the template is gone before the Store is closed")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if files, _ := onDisk(t, dir); files != 0 {
		t.Error("the template is left after the Store is closed")
	}
}

func TestTemplateWrong(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir, Options{MaxFiles: 6, MaxBytes: 100})
	ctx := t.Context()
	many, large, odd := filepath.Join(dir, "many"), filepath.Join(dir, "large"), filepath.Join(dir, "odd")
	for _, d := range []string{many, large, odd} {
		os.Mkdir(d, 0o755)
	}
	for i := range 7 {
		os.WriteFile(filepath.Join(many, fmt.Sprint(i)), nil, 0o644)
	}
	os.WriteFile(filepath.Join(large, "x"), make([]byte, 101), 0o644)
	os.WriteFile(filepath.Join(odd, "\xff"), nil, 0o644)
	for template, want := range map[string]string{many: "full", large: "full", odd: "invalid", filepath.Join(dir, "no"): "missing", filepath.Join(large, "x"): "not a directory"} {
		err := s.Seed(ctx, filepath.Join(dir, "w"), Seed{Template: template})
		if class(err) != want {
			t.Errorf("%s: %v, want %s", filepath.Base(template), err, want)
		}
		if _, err := os.Stat(filepath.Join(dir, "w")); !missing(err) {
			t.Errorf("%s: a failed Seed has left something", filepath.Base(template))
		}
	}
	// What is mended is tried again.
	os.Remove(filepath.Join(large, "x"))
	if err := s.Seed(ctx, filepath.Join(dir, "w"), Seed{Template: large}); err != nil {
		t.Error(err)
	}
	if files, _ := onDisk(t, dir); files > 1 {
		t.Errorf("%d layers are left", files)
	}
}

func TestTemplateChangedMeanwhile(t *testing.T) {
	dir, template := t.TempDir(), sample(t)
	s := newStore(t, dir, Options{})
	changed := false
	err := s.Seed(t.Context(), filepath.Join(dir, "w"), Seed{Template: template, Progress: func(int64, int64) {
		if !changed {
			changed = true
			os.WriteFile(filepath.Join(template, "src/new"), []byte("x"), 0o644)
		}
	}})
	if !contains(err, "changed") {
		t.Errorf("a template that changes: %v", err)
	}
	if files, _ := onDisk(t, dir); files != 0 {
		t.Errorf("%d layers are left", files)
	}
}

func TestCancelled(t *testing.T) {
	dir, template := t.TempDir(), sample(t)
	s := newStore(t, dir, Options{})
	for _, folder := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		err := s.Seed(ctx, filepath.Join(dir, "w"), Seed{Folder: folder, Template: template, Progress: func(int64, int64) { cancel() }})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("folder %v: %v", folder, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "w")); !missing(err) {
			t.Errorf("folder %v: something is left", folder)
		}
	}
}

// TestRecover has one process leave workspaces and frozen ones to the next.
func TestRecover(t *testing.T) {
	dir := t.TempDir()
	ctx := t.Context()
	layers, err := layer.OpenStore(layer.Options{Dir: filepath.Join(dir, "layers")})
	if err != nil {
		t.Fatal(err)
	}
	s := NewStore(layers, Options{Dir: filepath.Join(dir, "tmp")})
	path := func(name string) string { return filepath.Join(dir, name) }
	for name, folder := range map[string]bool{"tree": false, "folder": true, "stray": false} {
		if err := s.Seed(ctx, path(name), Seed{Folder: folder, Template: sample(t)}); err != nil {
			t.Fatal(err)
		}
		w, err := s.Open(path(name))
		if err != nil {
			t.Fatal(err)
		}
		mustWrite(t, w.FS(), "own", name)
	}
	var frozen []Frozen
	for _, name := range []string{"tree", "folder"} {
		f, err := s.Freeze(ctx, path(name), path("frozen-"+name))
		if err != nil {
			t.Fatal(err)
		}
		frozen = append(frozen, f)
	}
	written, err := json.Marshal(frozen)
	if err != nil {
		t.Fatal(err)
	}
	os.MkdirAll(path("tmp/work-left/x"), 0o700)
	os.MkdirAll(path("tmp/other"), 0o700)
	os.MkdirAll(path("folder/.clone-LEFT"), 0o700)
	layers.Close() // and nothing else, as when it is killed

	next := newStore(t, dir, Options{})
	frozen = nil
	if err := json.Unmarshal(written, &frozen); err != nil {
		t.Fatal(err)
	}
	if err := next.Recover(ctx, []string{path("tree"), path("folder")}, frozen, true); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"tmp/work-left", "folder/.clone-LEFT"} {
		if _, err := os.Stat(path(gone)); !missing(err) {
			t.Errorf("%s is left", gone)
		}
	}
	if _, err := os.Stat(path("tmp/other")); err != nil {
		t.Error("removed what is not its own")
	}
	for _, f := range frozen {
		if got, err := read(open(t, next, path("again-"+f.Kind), Seed{From: &f}), "own"); err != nil || got != f.Kind {
			t.Errorf("seeded from the frozen %s: %q, %v", f.Kind, got, err)
		}
		for range 2 {
			if err := next.Discard(ctx, f); err != nil {
				t.Error(err)
			}
		}
		if got, err := read(open(t, next, path(f.Kind), Seed{}), "own"); err != nil || got != f.Kind {
			t.Errorf("the %s: %q, %v", f.Kind, got, err)
		}
	}
	for _, name := range []string{"tree", "folder", "again-tree", "again-folder", "stray"} {
		if err := next.Erase(ctx, path(name)); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path(name)); !missing(err) {
			t.Errorf("%s is erased and still there", name)
		}
	}
	if files, _ := onDisk(t, dir); files != 0 {
		t.Errorf("%d layers are left", files)
	}
}
