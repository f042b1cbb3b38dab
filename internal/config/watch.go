package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	settle    = 100 * time.Millisecond // quiet time after a change before it is read
	settleMax = time.Second            // and the longest wait while changes go on
	pollEvery = 5 * time.Second
)

// Watch loads the config whenever it may have changed and hands the result to
// fn, until ctx ends. fn is called from one goroutine, first right away with
// the current content, so that nothing written between the caller's own Load
// and Watch is lost, then only when the content differs from the last time. An
// error means that the config can't be used as it is; the caller keeps the one
// it has.
//
// Files that the config takes in with ${file:}, env_file or key_file count as
// parts of it. Folders are watched and not files, as editors replace files and
// Kubernetes swaps links. A slow poll helps where the system's notices do not
// come: network file systems, too many watches, a folder that was recreated.
func Watch(ctx context.Context, path string, opts Options, fn func(*Config, error)) error {
	if path == "" {
		return errors.New("watch config: there is no file to watch")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("watch config: %w", err)
	}
	w := &watcher{path: path, abs: abs, opts: opts.filled(), folders: map[string]bool{}}
	// Without a watcher there is still the poll.
	if n, err := fsnotify.NewWatcher(); err == nil {
		w.notify = n
		defer n.Close()
	}
	w.run(ctx, pollEvery, fn)
	return nil
}

func (w *watcher) run(ctx context.Context, every time.Duration, fn func(*Config, error)) {
	var events <-chan fsnotify.Event
	var failures <-chan error
	if w.notify != nil {
		events, failures = w.notify.Events, w.notify.Errors
	}
	// Watched before it is read: a change in between is seen.
	w.arm()
	w.load(fn)

	poll := time.NewTicker(every)
	defer poll.Stop()
	var due <-chan time.Time
	var first time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			if !w.names[filepath.Clean(e.Name)] || e.Op == fsnotify.Chmod {
				continue
			}
			if due == nil {
				first = time.Now()
			}
			due = time.After(min(settle, settleMax-time.Since(first)))
		case _, ok := <-failures:
			if !ok {
				failures = nil
				continue
			}
			// Notices were lost, for one because there were too many: look.
			first, due = time.Now(), time.After(settle)
		case <-due:
			due = nil
			w.load(fn)
		case <-poll.C:
			if due == nil && w.signature() != w.seen {
				w.load(fn)
			}
		}
	}
}

type watcher struct {
	path, abs string
	opts      Options
	notify    *fsnotify.Watcher

	files   []string        // what the last load read beside the config
	folders map[string]bool // watched
	names   map[string]bool // paths whose events matter
	content string          // digest of what the last load read
	seen    string          // signature when it was read
}

// load reads the config and tells fn when it is another than before.
func (w *watcher) load(fn func(*Config, error)) {
	var c *Config
	var err error
	var content string
	// A file that is new to a load was not watched while it was read, so read
	// once more; a config that takes in other files each time gets the poll.
	for range 3 {
		before := w.files
		w.seen = w.signature()
		c, content, err = w.read()
		w.arm()
		if slices.Equal(before, w.files) {
			break
		}
	}
	if content == w.content {
		return
	}
	w.content = content
	fn(c, err)
}

// read loads once, and digests every byte that went into it.
func (w *watcher) read() (*Config, string, error) {
	sum := sha256.New()
	record := func(path string, data []byte, err error) {
		fmt.Fprintf(sum, "%q %d %v\n", path, len(data), err)
		sum.Write(data)
	}
	w.files = nil
	opts := w.opts
	opts.Path = w.path
	opts.ReadFile = func(path string) ([]byte, error) {
		data, err := w.opts.ReadFile(path)
		record(path, data, err)
		if abs, err := filepath.Abs(path); err == nil {
			w.files = append(w.files, abs)
		}
		return data, err
	}
	data, err := readBounded(w.path, maxJSONBytes)
	record(w.path, data, err)
	if err != nil {
		return nil, string(sum.Sum(nil)), fmt.Errorf("read config: %w", err)
	}
	c, err := Parse(data, opts)
	return c, string(sum.Sum(nil)), err
}

// arm watches the folder of every file and link that the config consists of.
func (w *watcher) arm() {
	w.names = map[string]bool{}
	folders := map[string]bool{}
	for _, f := range append([]string{w.abs}, w.files...) {
		for _, name := range linkChain(f) {
			w.names[name] = true
			folders[filepath.Dir(name)] = true
		}
	}
	if w.notify == nil {
		return
	}
	for f := range w.folders {
		if !folders[f] {
			// It may be gone already, and the watch with it.
			_ = w.notify.Remove(f)
		}
	}
	for f := range folders {
		// Adding a folder again is free and brings back a watch that died with an
		// earlier folder of the name. One that can't be watched is polled.
		_ = w.notify.Add(f)
	}
	w.folders = folders
}

// signature changes when one of the files does, as far as metadata tells.
func (w *watcher) signature() string {
	var b strings.Builder
	for _, f := range append([]string{w.abs}, w.files...) {
		info, err := os.Stat(f)
		if err != nil {
			fmt.Fprintf(&b, "%s %v\n", f, errors.Is(err, os.ErrNotExist))
			continue
		}
		target, _ := filepath.EvalSymlinks(f)
		fmt.Fprintf(&b, "%s %s %v %d %d\n", f, target, info.Mode(), info.Size(), info.ModTime().UnixNano())
	}
	return b.String()
}

// linkChain lists every path that decides what is found at path: each link on
// the way, and the file at its end.
func linkChain(path string) []string {
	var chain []string
	rest := strings.Split(filepath.ToSlash(strings.TrimPrefix(path, filepath.VolumeName(path))), "/")
	at := filepath.VolumeName(path) + string(filepath.Separator)
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, part)
		target, err := os.Readlink(next)
		if err != nil {
			at = next
			continue
		}
		chain = append(chain, next)
		if links++; links > 40 {
			break
		}
		if filepath.IsAbs(target) {
			at = filepath.VolumeName(target) + string(filepath.Separator)
			target = strings.TrimPrefix(target, filepath.VolumeName(target))
		}
		rest = append(strings.Split(filepath.ToSlash(target), "/"), rest...)
	}
	return append(chain, at)
}
