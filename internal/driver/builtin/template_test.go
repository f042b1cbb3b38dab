package builtin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
)

// counted counts imports, which wait for free where it is not nil.
func counted(w *world, free <-chan struct{}) (imports, ended *atomic.Int64) {
	imports, ended = new(atomic.Int64), new(atomic.Int64)
	k := w.kinds["memory"]
	load := k.Import
	k.Import = func(ctx context.Context, e Env, template string, progress func(done, total int64)) error {
		imports.Add(1)
		defer ended.Add(1)
		if free != nil {
			select {
			case <-free:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return load(ctx, e, template, progress)
	}
	w.kinds["memory"] = k
	return imports, ended
}

func (w *world) template(content string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, "memory.jsonl")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

const oneLine = `{"type":"entity","name":"a","entityType":"t","observations":["x"]}`

func TestTemplate(t *testing.T) {
	w := newWorld(t)
	imports, _ := counted(w, nil)
	spec := w.spec("0")
	spec.Template = w.template(oneLine)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			spec := spec
			spec.State = w.state(fmt.Sprint(i))
			if err := w.Seed(t.Context(), spec, driver.Source{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	w.add("3", "b")
	w.want("3", "a", "b")
	w.want("4", "a")
	if n := imports.Load(); n != 1 {
		t.Errorf("imported %d times", n)
	}

	// A changed template is another one; states on the old one stay.
	w.template(oneLine + "\n" + strings.Replace(oneLine, `"a"`, `"c"`, 1))
	spec.State = w.state("new")
	heard := int64(0)
	if err := w.Seed(t.Context(), spec, driver.Source{Progress: func(done, total int64) { heard = done }}); err != nil {
		t.Fatal(err)
	}
	w.want("new", "a", "c")
	w.want("4", "a")
	if n := imports.Load(); n != 2 || heard == 0 {
		t.Errorf("imported %d times, heard of %d bytes", n, heard)
	}
	// Settings may change what an import does.
	spec.State, spec.Settings = w.state("newer"), map[string]any{"max_entities": 1}
	if err := w.Seed(t.Context(), spec, driver.Source{}); err == nil || !strings.Contains(err.Error(), "max_entities") {
		t.Errorf("err = %v", err)
	}
	if _, err := os.Stat(spec.State); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a failed seed leaves %v", err)
	}

	left, err := os.ReadDir(w.Driver.dir)
	if err != nil || len(left) != 0 {
		t.Errorf("left of imports: %v, %v", left, err)
	}
	w.Driver.Close()
	for _, name := range []string{"new", "0"} {
		if err := w.Erase(t.Context(), w.spec(name)); err != nil {
			t.Fatal(err)
		}
	}
	for i := 1; i < 20; i++ {
		if err := w.Erase(t.Context(), w.spec(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.files(); n != 0 {
		t.Errorf("%d layers are left", n)
	}
}

func TestTemplateErrors(t *testing.T) {
	w := newWorld(t)
	imports, _ := counted(w, nil)
	spec := w.spec("a")
	spec.Template = filepath.Join(w.dir, "nope.jsonl")
	if err := w.Seed(t.Context(), spec, driver.Source{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("err = %v", err)
	}
	spec.Template = w.template(oneLine + "\n{")
	for range 2 {
		if err := w.Seed(t.Context(), spec, driver.Source{}); err == nil || !strings.Contains(err.Error(), "memory.jsonl line 2: is not JSON") {
			t.Errorf("err = %v", err)
		}
	}
	if n := imports.Load(); n != 2 {
		t.Errorf("a failure is remembered: %d imports", n)
	}
	if n := w.files(); n != 0 {
		t.Errorf("%d layers are left", n)
	}
}

// TestTemplateGivenUp has callers that stop waiting: the import goes on as long
// as one is left.
func TestTemplateGivenUp(t *testing.T) {
	w := newWorld(t)
	free := make(chan struct{})
	imports, ended := counted(w, free)
	spec := w.spec("a")
	spec.Template = w.template(oneLine)
	seed := func(ctx context.Context, name string) <-chan error {
		spec := spec
		spec.State = w.state(name)
		failed := make(chan error, 1)
		go func() { failed <- w.Seed(ctx, spec, driver.Source{}) }()
		return failed
	}
	waiting := func(n int) {
		t.Helper()
		testkit.Succeeds(t, fmt.Sprintf("%d wait", n), func() error {
			w.templates.mu.Lock()
			defer w.templates.mu.Unlock()
			users := 0
			for _, tpl := range w.templates.known {
				users += tpl.users
			}
			if users != n || imports.Load() == 0 {
				return fmt.Errorf("%d wait after %d imports", users, imports.Load())
			}
			return nil
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := seed(ctx, "a")
	waiting(1)
	second := seed(t.Context(), "b")
	waiting(2)
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("first: err = %v", err)
	}
	free <- struct{}{}
	if err := <-second; err != nil || imports.Load() != 1 {
		t.Errorf("second: err = %v after %d imports", err, imports.Load())
	}
	w.want("b", "a")

	// No caller is left: it ends.
	w.template(oneLine + "\n\n")
	ctx, cancel = context.WithCancel(t.Context())
	third := seed(ctx, "c")
	waiting(1)
	cancel()
	if err := <-third; !errors.Is(err, context.Canceled) {
		t.Errorf("third: err = %v", err)
	}
	testkit.Eventually(t, "the import without a caller ends", func() bool { return ended.Load() == 2 })
	// The driver ends while one waits.
	fourth := seed(t.Context(), "d")
	waiting(1)
	w.Driver.Close()
	if err := <-fourth; err == nil {
		t.Error("a template was imported after the end")
	}
	if err := <-seed(t.Context(), "e"); err == nil {
		t.Error("a template was imported after the end")
	}
}

func TestFingerprint(t *testing.T) {
	dir := t.TempDir()
	seen := map[string]string{}
	look := func(what, path string, fresh bool) {
		t.Helper()
		print, err := fingerprint(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if was, ok := seen[print]; ok == fresh {
			t.Errorf("%s: seen before as %q", what, was)
		}
		seen[print] = what
	}
	look("empty", dir, true)
	look("empty again", dir, false)
	file := filepath.Join(dir, "sub", "f")
	os.MkdirAll(filepath.Dir(file), 0o700)
	look("a folder", dir, true)
	os.WriteFile(file, []byte("a"), 0o600)
	look("a file", dir, true)
	os.Chtimes(file, time.Unix(1, 0), time.Unix(1, 0))
	look("an old file", dir, true)
	look("the file", file, true)
	link := filepath.Join(t.TempDir(), "link")
	if os.Symlink(dir, link) == nil { // needs a privilege on Windows
		look("a link", link, false)
	}
}
