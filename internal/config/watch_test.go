package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/testkit"
)

type reload struct {
	c   *Config
	err error
}

// watching runs Watch until the test ends and returns what it reports, the
// first report left out.
func watching(t *testing.T, path string) <-chan reload {
	t.Helper()
	return startWatch(t, func(ctx context.Context, fn func(*Config, error)) error {
		return Watch(ctx, path, noEnvFiles(), fn)
	})
}

func noEnvFiles() Options {
	return Options{Home: "/nowhere", Getenv: func(string) (string, bool) { return "", false }}
}

func startWatch(t *testing.T, watch func(context.Context, func(*Config, error)) error) <-chan reload {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	reloads, done := make(chan reload, 100), make(chan error)
	go func() { done <- watch(ctx, func(c *Config, err error) { reloads <- reload{c, err} }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	next(t, reloads)
	return reloads
}

func next(t *testing.T, reloads <-chan reload) reload {
	t.Helper()
	return testkit.Within(t, "a reload", reloads)
}

// until waits for the report that names the server; reports of a file that was
// only half written may come before.
func until(t *testing.T, reloads <-chan reload, id string) {
	t.Helper()
	for {
		if r := next(t, reloads); r.err == nil && len(r.c.Servers) > 0 && r.c.Servers[0].ID == id {
			return
		}
	}
}

func untilError(t *testing.T, reloads <-chan reload, is func(error) bool) {
	t.Helper()
	for {
		if r := next(t, reloads); r.err != nil && is(r.err) {
			return
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func one(id string) string { return fmt.Sprintf("servers: {%s: {builtin: time}}\n", id) }

func TestWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tine.yaml")
	write(t, path, one("a"))
	reloads := watching(t, path)

	write(t, path, one("b"))
	until(t, reloads, "b")

	// An editor writes beside and renames.
	write(t, path+".tmp", one("c"))
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
	until(t, reloads, "c")

	write(t, path, "servers: [\n")
	untilError(t, reloads, func(err error) bool { return strings.Contains(err.Error(), "tine.yaml:1:10: not valid YAML") })

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	untilError(t, reloads, func(err error) bool { return errors.Is(err, fs.ErrNotExist) })

	write(t, path, one("d"))
	until(t, reloads, "d")
}

func TestWatchSameContentIsNoChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tine.yaml")
	write(t, path, one("a"))
	reloads := watching(t, path)
	write(t, path, one("a"))
	write(t, filepath.Join(filepath.Dir(path), "other.yaml"), one("x"))
	write(t, path, one("b"))
	until(t, reloads, "b")
	select {
	case r := <-reloads:
		t.Errorf("another report: %+v", r)
	default:
	}
}

func TestWatchFirstReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tine.yaml")
	write(t, path, one("a"))
	ctx, cancel := context.WithCancel(context.Background())
	var got []string
	err := Watch(ctx, path, noEnvFiles(), func(c *Config, err error) {
		got = append(got, c.Servers[0].ID)
		cancel()
	})
	if err != nil || len(got) != 1 || got[0] != "a" {
		t.Errorf("got %v, %v", got, err)
	}
	if err := Watch(ctx, "", noEnvFiles(), nil); err == nil {
		t.Error("no path is no error")
	}
}

// Kubernetes mounts a ConfigMap as links into a folder that it swaps.
func TestWatchConfigMap(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege on Windows")
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "..2026_1/tine.yaml"), one("a"))
	link(t, "..2026_1", filepath.Join(dir, "..data"))
	link(t, "..data/tine.yaml", filepath.Join(dir, "tine.yaml"))
	reloads := watching(t, filepath.Join(dir, "tine.yaml"))
	for i, id := range []string{"b", "c"} {
		name := fmt.Sprintf("..2026_%d", i+2)
		write(t, filepath.Join(dir, name, "tine.yaml"), one(id))
		link(t, name, filepath.Join(dir, "..data_tmp"))
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_%d", i+1))); err != nil {
			t.Fatal(err)
		}
		until(t, reloads, id)
	}
}

// A release is often a link to a folder, swapped when the next one is there.
func TestWatchLinkedFolder(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege on Windows")
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "v1/etc/tine.yaml"), one("a"))
	write(t, filepath.Join(dir, "v2/etc/tine.yaml"), one("b"))
	link(t, filepath.Join(dir, "v1"), filepath.Join(dir, "current"))
	reloads := watching(t, filepath.Join(dir, "current/etc/tine.yaml"))
	link(t, "v2", filepath.Join(dir, "next"))
	if err := os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "current")); err != nil {
		t.Fatal(err)
	}
	until(t, reloads, "b")
	write(t, filepath.Join(dir, "v2/etc/tine.yaml"), one("c"))
	until(t, reloads, "c")
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func TestWatchIncludedFiles(t *testing.T) {
	dir := t.TempDir()
	path, key := filepath.Join(dir, "tine.yaml"), filepath.Join(dir, "secrets", "key")
	write(t, key, "one")
	write(t, path, "servers: {a: {command: x, args: ['${file:secrets/key}']}}\n")
	reloads := watching(t, path)
	write(t, key, "two")
	for {
		if r := next(t, reloads); r.err == nil && r.c.Servers[0].Args[0] == "two" {
			break
		}
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	for {
		if r := next(t, reloads); r.err == nil && r.c.Servers[0].Disabled != "" {
			break
		}
	}
	write(t, key, "three")
	for {
		if r := next(t, reloads); r.err == nil && r.c.Servers[0].Disabled == "" && r.c.Servers[0].Args[0] == "three" {
			break
		}
	}
}

// Without notices from the system the poll has to do.
func TestWatchPolls(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "etc", "tine.yaml")
	write(t, path, one("a"))
	reloads := startWatch(t, func(ctx context.Context, fn func(*Config, error)) error {
		w := &watcher{path: path, abs: path, opts: noEnvFiles().filled(), folders: map[string]bool{}}
		w.run(ctx, 10*time.Millisecond, fn)
		return nil
	})
	write(t, path, one("bb"))
	until(t, reloads, "bb")
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	untilError(t, reloads, func(err error) bool { return errors.Is(err, fs.ErrNotExist) })
	write(t, path, one("c"))
	until(t, reloads, "c")
}

func TestLinkChainEnds(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege on Windows")
	}
	dir := t.TempDir()
	link(t, "b", filepath.Join(dir, "a"))
	link(t, "a", filepath.Join(dir, "b"))
	if n := len(linkChain(filepath.Join(dir, "a"))); n > 50 {
		t.Errorf("a loop gave %d steps", n)
	}
}
