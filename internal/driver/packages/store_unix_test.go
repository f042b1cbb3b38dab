//go:build unix

package packages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/flight"
)

func TestPinned(t *testing.T) {
	w := newWorld(t, Limits{})
	first := w.get(t, "npx server")
	w.publish("2.0.0")
	if again := w.get(t, "npx server"); again.Dir != first.Dir || again.Version != "1.0.0" || w.count() != 1 {
		t.Fatalf("the wish was not pinned: %+v after %d fetches", again, w.count())
	}
	w.open(t, Limits{}) // a restart
	if again := w.get(t, "npx server"); again.Dir != first.Dir || w.count() != 1 {
		t.Fatalf("the wish was not pinned over a restart: %+v", again)
	}
}

func TestTornFolders(t *testing.T) {
	for name, tear := range map[string]func(dir string) error{
		"half a record": func(dir string) error { return os.Truncate(filepath.Join(dir, recordFile), 40) },
		"empty record":  func(dir string) error { return os.Truncate(filepath.Join(dir, recordFile), 0) },
		"no record":     func(dir string) error { return os.Remove(filepath.Join(dir, recordFile)) },
		"zeros": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, recordFile), make([]byte, 500), 0o644)
		},
		"another format": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, recordFile), []byte(`{"Format": 99}`), 0o644)
		},
		"half a lock": func(dir string) error { return os.Truncate(filepath.Join(dir, npmLock), 3) },
		"no lock":     func(dir string) error { return os.Remove(filepath.Join(dir, npmLock)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Limits{})
			first := w.get(t, "npx server")
			err := errors.Join(os.Chmod(first.Dir, 0o755), os.Chmod(filepath.Join(first.Dir, recordFile), 0o644), os.Chmod(filepath.Join(first.Dir, npmLock), 0o644), tear(first.Dir))
			if err != nil {
				t.Fatal(err)
			}
			w.open(t, Limits{})
			again := w.get(t, "npx server")
			if again.Dir == first.Dir || w.count() != 2 {
				t.Fatalf("what is torn was used: %s", again.Dir)
			}
			if next := w.get(t, "npx server"); next.Dir != again.Dir || w.count() != 2 {
				t.Errorf("the whole one was not used: %s", next.Dir)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	flood := func(size int) func(context.Context, Step) error {
		return func(ctx context.Context, step Step) error {
			for i := 0; i < 100 && ctx.Err() == nil; i++ {
				if err := os.WriteFile(filepath.Join(step.Dir, fmt.Sprint(i)), make([]byte, size), 0o644); err != nil {
					return err
				}
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}
	}
	finish := func(_ context.Context, step Step) error {
		return os.WriteFile(filepath.Join(step.Dir, "big"), make([]byte, 1<<20), 0o644)
	}
	for _, tt := range []struct {
		name   string
		limits Limits
		before func(context.Context, Step) error
		time   time.Duration
		says   string
		final  bool
	}{
		{"files", Limits{Files: 50}, flood(1), 0, "50 files", true},
		{"bytes", Limits{Bytes: 1 << 20}, flood(100 << 10), 0, "1.0 MiB", true},
		{"bytes at the end", Limits{Bytes: 1 << 20}, finish, 0, "1.0 MiB", true},
		{"time", Limits{}, flood(1), 50 * time.Millisecond, "50ms; check the network, or raise limits.fetch; it may be tried again", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tt.limits)
			w.before = tt.before
			_, err := w.store.Get(t.Context(), wish(t, "npx server"), tt.time)
			if !errors.Is(err, ErrLimit) || errors.Is(err, driver.ErrFinal) != tt.final || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), `"server"`) {
				t.Errorf("got %v", err)
			}
			if names := w.left(t); len(names) != 0 {
				t.Errorf("left behind: %q", names)
			}
		})
	}
}

func TestWhoComesFirstMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Limits{})
		inside, goOn := make(chan struct{}), make(chan struct{})
		w.before = func(ctx context.Context, _ Step) error {
			close(inside)
			select {
			case <-goOn:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		first, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var firstErr, secondErr error
		wg.Go(func() { _, firstErr = w.store.Get(first, wish(t, "npx server"), 0) })
		<-inside
		wg.Go(func() { _, secondErr = w.store.Get(t.Context(), wish(t, "npx server a"), 0) })
		synctest.Wait()
		if err := w.store.Sweep(); err != nil {
			t.Error(err)
		}
		if len(parts(w.left(t))) != 1 {
			t.Error("a sweep took the part of a fetch that goes on")
		}
		leave()
		synctest.Wait()
		close(goOn)
		wg.Wait()
		if !errors.Is(firstErr, context.Canceled) || secondErr != nil {
			t.Errorf("the first got %v, the second %v", firstErr, secondErr)
		}
		if w.count() != 1 {
			t.Errorf("%d fetches", w.count())
		}
	})
}

// A fetch goes on when all callers have left, reports its progress, and is there for
// later callers.
func TestAllLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Limits{})
		ctx, leave := context.WithCancel(t.Context())
		goOn := make(chan struct{})
		w.before = func(ctx context.Context, step Step) error {
			if err := os.WriteFile(filepath.Join(step.Dir, "big"), make([]byte, 3<<20), 0o644); err != nil {
				return err
			}
			leave()
			select {
			case <-goOn:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if _, err := w.store.Get(ctx, wish(t, "npx server"), 0); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		time.Sleep(1500 * time.Millisecond)
		if f := w.store.Fetching(wish(t, "npx server a b")); f == nil || f.String() != "fetching, 3 MB" || f.Package != "server" {
			t.Errorf("it is %v", f)
		}
		if f := w.store.Fetching(wish(t, "npx other")); f != nil {
			t.Errorf("something else is %v", f)
		}
		close(goOn)
		w.get(t, "npx server")
		if w.count() != 1 {
			t.Errorf("%d fetches", w.count())
		}
		if f := w.store.Fetching(wish(t, "npx server")); f != nil {
			t.Errorf("at the end it is %v", f)
		}
	})
}

// Close ends a fetch that no caller waits for, and leaves nothing of it.
func TestCloseEndsFetches(t *testing.T) {
	w := newWorld(t, Limits{})
	ctx, leave := context.WithCancel(t.Context())
	w.before = func(ctx context.Context, _ Step) error {
		leave()
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if _, err := w.store.Get(ctx, wish(t, "npx server"), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	w.store.Close()
	if names := w.left(t); len(names) != 0 {
		t.Errorf("left behind: %q", names)
	}
	if _, err := w.store.Get(t.Context(), wish(t, "npx server"), 0); !errors.Is(err, flight.ErrClosed) || w.count() != 1 {
		t.Errorf("after the end got %v, and %d fetches", err, w.count())
	}
}

// uv says how much there is to load.
func TestTotals(t *testing.T) {
	out, p := &output{}, &progress{}
	p.set(7e6, out)
	fmt.Fprint(out, "Resolved 31 packages in 1.58s\nDownloading pydantic-core (2.0MiB)\nDownloading cryptography (78.0MiB)\nDownloading pydantic-core (2.0MiB)\n Downloaded pydantic-core\n Downloaded pydantic-core\n Downloaded nothing\n")
	p.set(50e6, out)
	if got := (&api.Fetch{Bytes: p.bytes.Load(), Total: p.total.Load()}).String(); got != "fetching, 2 MB of 84" {
		t.Error(got)
	}
}

// An error has the package, the last five lines of the installer's output, and whether
// another try can help.
func TestFetchErrors(t *testing.T) {
	for _, tt := range []struct {
		says, again string
		final       bool
	}{
		{"npm error code E404\nnpm error 404 Not Found - GET x", "until that is changed", true},
		{"npm error code ECONNRESET", "it may be tried again", false},
		{"what is this", "it may be tried again", false},
	} {
		w := newWorld(t, Limits{})
		w.before = func(_ context.Context, step Step) error {
			fmt.Fprintf(step.Out, "%s\n%s\n", strings.Repeat("chat\n", 100), tt.says)
			return errors.New("exit status 1")
		}
		_, err := w.store.Get(t.Context(), wish(t, "npx server"), 0)
		text, words := fmt.Sprint(err), driver.Words(err)
		if !strings.HasPrefix(text, `fetch package "server": npm install failed (exit status 1); `) || strings.Count(words, "\n") != 4 ||
			!strings.HasSuffix(words, tt.says) || !strings.Contains(text, tt.again) || errors.Is(err, driver.ErrFinal) != tt.final {
			t.Errorf("%s: got %v, final %t", tt.says, err, errors.Is(err, driver.ErrFinal))
		}
	}
}

func TestErrorsHaveNoSecrets(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".npmrc"), []byte("//r.example/:_authToken=inthefile\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, Limits{}, "HOME="+home, "npm_config_registry=https://me:intheurl@r.example")
	w.before = func(_ context.Context, step Step) error {
		fmt.Fprintln(step.Out, "npm error code E401\nsent inthefile to https://me:intheurl@r.example and got Bearer intheheader")
		return errors.New("exit status 1")
	}
	_, err := w.store.Get(t.Context(), wish(t, "npx server"), 0)
	if !errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v", err)
	}
	text := fmt.Sprint(err, driver.Words(err))
	for _, secret := range []string{"inthefile", "intheurl", "intheheader"} {
		if strings.Contains(text, secret) {
			t.Errorf("the error has %s: %s", secret, text)
		}
	}
	for _, part := range []string{`"server"`, "E401", "login"} {
		if !strings.Contains(text, part) {
			t.Errorf("the error has no %s: %s", part, text)
		}
	}
}

func TestProgramsOfPackages(t *testing.T) {
	two := map[string]string{"one": "cli.js", "two": "other.sh"}
	for _, tt := range []struct {
		name string
		bins map[string]string
		line string
		want string // the end of the command line, or of the error
	}{
		{"called like the package", map[string]string{"server": "cli.js", "x": "other.sh"}, "npx server a", "/node DIR/cli.js a"},
		{"the only one", map[string]string{"x": "./cli.js"}, "npx server", "/node DIR/cli.js"},
		{"two names of one", map[string]string{"x": "cli.js", "y": "cli.js"}, "npx server", "/node DIR/cli.js"},
		{"named", two, "npx -p server two a", "DIR/other.sh a"},
		{"several", two, "npx server", "choose one of one, two: npx -p server PROGRAM"},
		{"none", nil, "npx server", "has no program to run; name another package"},
		{"not there", two, "npx -p server three", `has no program "three"; it has one, two`},
		{"outside", map[string]string{"server": "../../../../etc/passwd"}, "npx server", "has no program to run; name another package"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, Limits{})
			w.bins = tt.bins
			found, err := w.store.Get(t.Context(), wish(t, tt.line), 0)
			got := strings.Join(append([]string{found.Command}, found.Args...), " ")
			if err != nil {
				got = err.Error()
			}
			want := strings.ReplaceAll(tt.want, "DIR", filepath.Join(found.At, "node_modules", "server"))
			if !strings.HasSuffix(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestInterpreterIsGone(t *testing.T) {
	w := newWorld(t, Limits{})
	first := w.get(t, "uvx server")
	node := w.get(t, "npx server")
	w.publish("2.0.0")
	old := w.bin
	w.bin = realDir(t)
	for _, name := range []string{"node", "npm", "python3"} {
		w.program(t, name)
	}
	if err := os.RemoveAll(old); err != nil {
		t.Fatal(err)
	}
	w.open(t, Limits{})
	again := w.get(t, "uvx server")
	if again.Dir == first.Dir {
		t.Error("an environment without its interpreter was used")
	}
	install := strings.Join(w.installs[len(w.installs)-1].Args, " ")
	if !strings.Contains(install, "--no-deps -r ") {
		t.Errorf("it was fetched again without its versions: %s", install)
	}
	if target, err := os.Readlink(filepath.Join(again.Dir, strings.TrimPrefix(again.Command, again.At))); err != nil || target != filepath.Join(w.bin, "python3") {
		t.Errorf("the environment runs %s, %v", target, err)
	}
	if next := w.get(t, "npx server"); next.Dir != node.Dir || next.Command != filepath.Join(w.bin, "node") {
		t.Errorf("npm packages are run by %s from %s", next.Command, next.Dir)
	}
}

// Two stores that have the same packages show them at the same place, however they
// are called outside and whatever installers noted beside them.
func TestNamedByContent(t *testing.T) {
	one, two := newWorld(t, Limits{}), newWorld(t, Limits{})
	two.bin = one.bin
	two.dir = filepath.Join(two.dir, strings.Repeat("long", 40)) // too long for the first line of a script
	two.open(t, Limits{})
	for _, line := range []string{"npx server", "uvx server"} {
		here, there := one.get(t, line), two.get(t, line)
		if here.At != there.At || here.Dir == there.Dir || !strings.HasPrefix(here.At, Inside+"/") {
			t.Errorf("%s: %s is seen at %s, and %s at %s", line, here.Dir, here.At, there.Dir, there.At)
		}
		if here.Moves[here.At] != here.Dir {
			t.Errorf("%s: %s is not found by %v", line, here.At, here.Moves)
		}
		a, b := append([]string{here.Command}, here.Args...), append([]string{there.Command}, there.Args...)
		if !slices.Equal(a, b) || !slices.Equal(here.Path, there.Path) || !maps.Equal(here.Env, there.Env) {
			t.Errorf("%s: runs %q %q %v here and %q %q %v there", line, a, here.Path, here.Env, b, there.Path, there.Env)
		}
	}
	other := newWorld(t, Limits{})
	other.bin = one.bin
	other.open(t, Limits{})
	other.publish("2.0.0")
	if other.get(t, "npx server").At == one.get(t, "npx server").At {
		t.Error("another version has the same name")
	}
}

// A folder of an earlier version stays where its scripts say that it is.
func TestFoldersOfTheFirstFormat(t *testing.T) {
	w := newWorld(t, Limits{})
	first := w.get(t, "npx server")
	name := filepath.Join(first.Dir, recordFile)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var rec map[string]any
	if err := json.Unmarshal(b, &rec); err != nil {
		t.Fatal(err)
	}
	rec["Format"] = 1
	delete(rec, "Sum")
	if b, err = json.Marshal(rec); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	w.open(t, Limits{})
	again := w.get(t, "npx server")
	if again.Dir != first.Dir || again.At != first.Dir || len(again.Moves) != 0 || w.count() != 1 || !strings.HasPrefix(again.Args[0], first.Dir+"/") {
		t.Errorf("found %+v after %d fetches", again, w.count())
	}
}
