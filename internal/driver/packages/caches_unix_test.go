//go:build unix

package packages

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/packages/registrytest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// A tool is run with the same options and the same package, and starts nothing.
func TestWhatHasToolsFetch(t *testing.T) {
	c, err := OpenCaches(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for line, want := range map[string]string{
		"npx -y pkg a -b":                        "-y pkg",
		"npx -y -p pkg prog a":                   "-y -p pkg prog",
		"npm exec -y pkg -- a":                   "exec -y pkg -- a",
		"uvx pkg a b":                            "--from pkg python -I -S -c pass",
		"uvx pkg@1.2 a":                          "--from pkg@1.2 python -I -S -c pass",
		"uvx --python 3.12 --from pkg[x] prog a": "--python 3.12 --from pkg[x] python -I -S -c pass",
		"uvx --with more -- pkg a":               "--with more --from pkg python -I -S -c pass",
		"uvx --from git+https://x/y prog":        "--from git+https://x/y python -I -S -c pass",
		"uv tool run pkg a":                      "tool run --from pkg python -I -S -c pass",
		"pipx run pkg a":                         "run --spec pkg python -I -S -c pass",
		"pipx run --spec pkg==1 prog":            "run --spec pkg==1 python -I -S -c pass",
		"npx -c 'pkg'":                           "",
		"npx --script-shell bash pkg":            "",
		"npx ./folder":                           "",
		"npx":                                    "",
		"uvx --offline pkg":                      "",
		"node server.js":                         "",
		"uv run pkg":                             "",
	} {
		words := strings.Fields(line)
		f, ok := c.plan(Command{Path: "/bin/" + words[0], Args: words[1:], Env: []string{"HOME=/x"}})
		got := ""
		if ok {
			got = strings.Join(f.step.Args, " ")
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
	key := func(cmd Command) string { f, _ := c.plan(cmd); return f.key }
	one := Command{Path: "/bin/uvx", Args: []string{"pkg", "a"}, Env: []string{"HOME=/x", "TOKEN=1"}}
	other := Command{Path: "/bin/uvx", Args: []string{"pkg", "b"}, Env: []string{"TOKEN=2", "HOME=/x"}}
	if key(one) != key(other) {
		t.Error("arguments of the program make another fetch")
	}
	other.Env = []string{"HOME=/y"}
	if key(one) == key(other) {
		t.Error("two caches are one fetch")
	}
}

// runFor is a tool that takes so long.
type runFor time.Duration

func (d runFor) Run(context.Context, Step) error {
	time.Sleep(time.Duration(d)) // in a bubble
	return nil
}

// The log has a fetch when it has begun, and nothing of a tool that finds its packages.
func TestFetchIsLogged(t *testing.T) {
	for long, want := range map[time.Duration]string{time.Second: "", 9 * time.Second: "fetching a package pkg;fetched a package pkg;"} {
		synctest.Test(t, func(t *testing.T) {
			var log testkit.Log
			lines := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.MessageKey || a.Key == "package" {
					return a
				}
				return slog.Attr{}
			}}))
			c, err := OpenCaches(t.TempDir(), lines)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.runner = runFor(long)
			fetched := make(chan error, 1)
			go func() {
				fetched <- c.Fetch(t.Context(), Command{Path: "/bin/uvx", Args: []string{"pkg"}, Env: []string{"HOME=/x"}}, 0)
			}()
			time.Sleep(3 * time.Second)
			synctest.Wait()
			tidy := strings.NewReplacer("msg=\"", "", "\" package=", " ", "\n", ";").Replace
			if got := tidy(log.String()); !strings.HasPrefix(want, got) || want != "" && got == "" {
				t.Errorf("after 3 s the log of a fetch of %s has %q", long, got)
			}
			if err := <-fetched; err != nil || tidy(log.String()) != want {
				t.Errorf("the log of a fetch of %s has %q, %v", long, tidy(log.String()), err)
			}
		})
	}
}

func npxOf(t *testing.T, r *registrytest.Registry, spec string) Command {
	t.Helper()
	path, err := exec.LookPath("npx")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	home := t.TempDir()
	env := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
	for name, value := range r.Env() {
		env = append(env, name+"="+value)
	}
	return Command{Path: path, Args: []string{"-y", spec, "--flag"}, Env: env, Dir: home}
}

// What npx fetches goes on when the caller leaves, is fetched once for all callers, and
// is there when npx is started.
func TestNpxFetchesOnce(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t)
	cmd, dir := npxOf(t, r, registrytest.Name), t.TempDir()
	c, err := OpenCaches(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-r.Began(); leave() }()
	if err := c.Fetch(ctx, cmd, time.Minute); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if f := c.Fetching(cmd); f == nil || f.Package != registrytest.Name {
		t.Errorf("it is %v", f)
	}
	again := make(chan error, 2)
	for range cap(again) {
		go func() { again <- c.Fetch(t.Context(), cmd, time.Minute) }()
	}
	r.Release()
	for range cap(again) {
		if err := <-again; err != nil {
			t.Error(err)
		}
	}
	if f := c.Fetching(cmd); f != nil {
		t.Errorf("it is still %v", f)
	}
	run := exec.CommandContext(t.Context(), cmd.Path, cmd.Args...)
	run.Env, run.Dir, run.Stdin = cmd.Env, cmd.Dir, strings.NewReader(`{"id":1,"method":"initialize"}`)
	if out, err := run.Output(); err != nil || !strings.Contains(string(out), registrytest.Name) {
		t.Errorf("the program says %q, %v", out, err)
	}
	if r.Loads() != 1 {
		t.Errorf("it was loaded %d times", r.Loads())
	}
	c.Close()
	next, err := OpenCaches(dir, nil) // the next gateway
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if f, _ := next.plan(cmd); !f.noted() {
		t.Error("it is not noted that it was fetched")
	}
	next.Refetch(cmd)
	if f, _ := next.plan(cmd); f.noted() {
		t.Error("it is noted after it was asked for again")
	}
}

// After a fetch that was killed in the middle, the next one neither waits for the lock
// that npx left nor takes what is half installed for whole.
func TestNpxIsCutInTheMiddle(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t)
	cmd, dir := npxOf(t, r, registrytest.Name), t.TempDir()
	c, err := OpenCaches(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Fetch(t.Context(), cmd, time.Minute) }()
	<-r.Began()
	c.Close()
	if err := <-ended; err == nil {
		t.Error("a fetch that was ended succeeded")
	}
	home := strings.TrimPrefix(cmd.Env[0], "HOME=")
	f, _ := c.plan(cmd)
	made, _ := filepath.Glob(filepath.Join(home, ".npm", "_npx", "*"))
	if len(made) != 1 || made[0] != f.npxDir() {
		t.Fatalf("npx installs in %v, not in %s", made, f.npxDir())
	}
	// A killed npx may leave a lock that was touched just now, and a package without all
	// of its files.
	lock, half := filepath.Join(made[0], "concurrency.lock"), filepath.Join(made[0], "node_modules", registrytest.Name)
	if err := os.RemoveAll(made[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(half, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(half, "package.json"), []byte(`{"name":"`+registrytest.Name+`","version":"1.0.0","bin":{"`+registrytest.Name+`":"cli.js"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(lock, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	r.Release()
	if c, err = OpenCaches(dir, nil); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Fetch(t.Context(), cmd, 45*time.Second); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*"+goingEnd)); len(left) > 0 || exists(lock) {
		t.Errorf("left behind: %v, and the lock %t", left, exists(lock))
	}
	if !exists(filepath.Join(half, "cli.js")) {
		t.Error("the package has not all of its files")
	}
}

// Fetches that hang keep no other waiting.
func TestFetchesThatHang(t *testing.T) {
	fs := newFetches[int]()
	fs.turn = time.Millisecond
	defer fs.group.Close()
	begun := make(chan struct{})
	hangs := func(ctx context.Context, _ *progress) (int, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return 0, ctx.Err()
	}
	for i := range 2 * atOnce {
		go fs.do(t.Context(), fmt.Sprint(i), "p", time.Minute, hangs)
	}
	for range 2 * atOnce {
		<-begun
	}
	if got, err := fs.do(t.Context(), "good", "p", time.Minute, func(context.Context, *progress) (int, error) { return 7, nil }); got != 7 || err != nil {
		t.Errorf("got %d, %v", got, err)
	}
}

// Errors say fetch, and secrets are not in them.
func TestNpxFails(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t)
	cmd := npxOf(t, r, "no-such-package")
	at := slices.Index(cmd.Env, "npm_config_registry="+r.URL)
	cmd.Env[at] = strings.Replace(cmd.Env[at], "://", "://me:hidden123@", 1)
	c, err := OpenCaches(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.Fetch(t.Context(), cmd, time.Minute)
	if !errors.Is(err, driver.ErrFinal) || !strings.HasPrefix(err.Error(), `fetch package "no-such-package": npx failed (exit status 1); there is no such package`) ||
		!strings.Contains(driver.Words(err), "E404") || strings.Count(driver.Words(err), "\n") >= 5 || strings.Contains(fmt.Sprint(err, driver.Words(err)), "hidden123") {
		t.Errorf("got %v: %s", err, driver.Words(err))
	}
	cmd = npxOf(t, r, registrytest.Name)
	err = c.Fetch(t.Context(), cmd, 2*time.Second)
	if !errors.Is(err, ErrLimit) || errors.Is(err, driver.ErrFinal) || !strings.Contains(err.Error(), "limits.fetch; it may be tried again") {
		t.Errorf("got %v", err)
	}
}

// The lock of an npx that runs is left alone.
func TestNpxOfOthersKeepsItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := t.TempDir()
		c, err := OpenCaches(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		f, _ := c.plan(Command{Path: "/bin/npx", Args: []string{"pkg"}, Env: []string{"HOME=" + home}})
		lock := filepath.Join(f.npxDir(), "concurrency.lock")
		if err := os.MkdirAll(lock, 0o700); err != nil {
			t.Fatal(err)
		}
		touch := func() {
			if err := os.Chtimes(lock, time.Now(), time.Now()); err != nil {
				t.Error(err)
			}
		}
		touch()
		time.AfterFunc(time.Second, touch)
		f.clear(t.Context())
		if !exists(lock) {
			t.Error("a lock that was touched is gone")
		}
		f.clear(t.Context())
		if exists(lock) {
			t.Error("an abandoned lock stays")
		}
	})
}
