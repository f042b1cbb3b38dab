package packages

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/driver/folder"
)

// fetching is one fetch while it goes on.
type fetching struct {
	store  *Store
	w      Wanted
	around surroundings
	out    *output
	step   atomic.Value // what it does now, a string

	part  string   // holds the two below
	tree  string   // what will be the folder
	home  string   // of the installers; thrown away
	final string   // where tree will be
	at    string   // where a program will see it
	pins  []string // versions that were resolved before and must be taken again
}

// fetch makes the next folder of a key, unless there is one that will do.
func (s *Store) fetch(ctx context.Context, key string, w Wanted, p *progress) (*record, error) {
	current, have := s.newest(key)
	if have && !current.stale() {
		return current, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	f := &fetching{store: s, w: w}
	var pins []string
	if have {
		s.opts.Log.Warn("the interpreter of packages is gone; they are fetched again in the same versions", "dir", current.dir, "interpreter", current.Interpreter)
		pins = current.pins()
	}
	n := 1
	if numbers := s.numbers(key); len(numbers) > 0 {
		n = numbers[0] + 1
	}
	if err := f.begin(key, n); err != nil {
		return nil, fmt.Errorf("fetch package %q: %w", mask(w.Package), err)
	}
	f.pins = pins
	defer f.end()

	began := time.Now()
	log := s.opts.Log.With("package", mask(w.Package))
	log.Info(logFetching)
	rest := f.watch(ctx, cancel, p)
	rec, err := f.fill(ctx)
	rest()
	if err == nil {
		err = f.finish(ctx, rec)
	}
	if err != nil {
		return nil, err
	}
	rec.dir = f.final
	log.Info(logFetched, "version", rec.Version, "files", rec.Files, "size", size(rec.Bytes), "took", time.Since(began).Round(100*time.Millisecond))
	return rec, nil
}

func (f *fetching) begin(key string, n int) error {
	s := f.store
	s.mu.Lock()
	part, err := os.MkdirTemp(s.dir, key+".*"+partEnd)
	if err == nil {
		s.parts[part] = true
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	f.part, f.tree, f.home, f.final = part, filepath.Join(part, "tree"), filepath.Join(part, "home"), s.folder(key, n)
	f.around = s.surround(f.w, f.home)
	f.out = &output{secrets: f.around.secrets}
	f.step.Store("")
	for _, dir := range []string{f.tree, f.home, f.around.vars["TMPDIR"]} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			f.end()
			return err
		}
	}
	return nil
}

// end removes what is not part of the folder, also what was made read-only.
func (f *fetching) end() {
	err := clone.Remove(f.part)
	if err != nil {
		// Something of an installer may still have written; once more.
		time.Sleep(50 * time.Millisecond)
		err = clone.Remove(f.part)
	}
	if err != nil {
		f.store.opts.Log.Warn("a part of a fetch is left; the next sweep removes it", "dir", f.part, "error", err)
	}
	f.store.mu.Lock()
	delete(f.store.parts, f.part)
	f.store.mu.Unlock()
}

func (f *fetching) fill(ctx context.Context) (*record, error) {
	if f.w.Kind == NPM {
		return f.npm(ctx)
	}
	return f.python(ctx)
}

// run runs one step and explains its failure.
func (f *fetching) run(ctx context.Context, name, command string, args ...string) error {
	f.step.Store(name)
	f.store.opts.Log.Debug("fetch packages", "step", name, "package", mask(f.w.Package))
	err := f.store.opts.Runner.Run(ctx, Step{Command: command, Args: args, Env: environ(f.around.vars), Dir: f.tree, Out: f.out})
	if err != nil {
		return explain(ctx, f.w, name, f.out, err)
	}
	return nil
}

// ask runs a program that prints JSON, and reads that.
func (s *Store) ask(ctx context.Context, vars map[string]string, into any, command string, args ...string) error {
	var out answer
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("%w: %s did not answer for a minute", ErrLimit, command))
	defer cancel()
	err := s.opts.Runner.Run(ctx, Step{Command: command, Args: args, Env: environ(vars), Dir: s.dir, Out: &out})
	text := strings.TrimSpace(out.String())
	if err != nil {
		if len(text) > 500 {
			text = text[len(text)-500:]
		}
		return fmt.Errorf("ask %s: %w: %s", command, err, strings.ToValidUTF8(mask(text), "?"))
	}
	// Warnings may stand before it: the answer is the last line.
	if err := json.Unmarshal([]byte(text[strings.LastIndexByte(text, '\n')+1:]), into); err != nil || out.over {
		return fmt.Errorf("ask %s: its answer is not understood: %w", command, err)
	}
	return nil
}

// finish makes the tree read-only, writes its record and puts it in its place.
func (f *fetching) finish(ctx context.Context, rec *record) error {
	fail := func(step string, err error) error {
		return fmt.Errorf("fetch package %q: %s: %w", mask(f.w.Package), step, err)
	}
	bytes, files, err := measure(f.tree)
	if err != nil {
		return fail("measure it", err)
	}
	if err := f.store.opts.Limits.hold(bytes, files); err != nil {
		return fail("measure it", err)
	}
	rec.Kind, rec.Bytes, rec.Files, rec.Made = f.w.Kind, bytes, files, time.Now().UTC()
	for _, spec := range f.w.specs() {
		rec.Wish = append(rec.Wish, mask(spec))
	}
	slices.Sort(rec.Reads)
	rec.Reads = slices.Compact(rec.Reads)
	if err := settle(f.tree); err != nil {
		return fail("make it readable", err)
	}
	if err := syncTree(f.tree); err != nil {
		return fail("sync it", err)
	}
	if err := rec.write(f.tree); err != nil {
		return fail("write its record", err)
	}
	if ctx.Err() != nil {
		return fail("finish", context.Cause(ctx))
	}
	if err := os.Chmod(filepath.Join(f.tree, recordFile), 0o644); err != nil {
		return fail("make its record readable", err)
	}
	if err := os.Chmod(f.tree, 0o755); err != nil {
		return fail("make it readable", err)
	}
	if err := os.Rename(f.tree, f.final); err != nil {
		return fail("put it in its place", err)
	}
	if err := folder.Sync(f.store.dir); err != nil {
		return fail("put it in its place", err)
	}
	return nil
}
