package packages_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver/packages"
	"github.com/tine-mcp/tine/internal/testkit"
)

// need skips a test that lacks a program here, and fails it in CI.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
}

// reachable skips a test for which there is no registry here, and fails it in CI.
func reachable(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if errors.Is(err, packages.ErrUnreachable) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	t.Fatal(err)
}

// pinned is the version that the tools of the end-to-end tests have.
func pinned(t *testing.T, file, pattern string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../../e2e/tools", file))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(pattern).FindSubmatch(b)
	if m == nil {
		t.Fatalf("%s has no %s", file, pattern)
	}
	return string(m[1])
}

func memory(t *testing.T) string {
	return "@modelcontextprotocol/server-memory@" + pinned(t, "package-lock.json", `"@modelcontextprotocol/server-memory": "([0-9.]+)"`)
}

func clock(t *testing.T) string {
	return "mcp-server-time==" + pinned(t, "requirements.txt", `(?m)^mcp-server-time==(\S+)$`)
}

func open(t *testing.T, opts packages.Options) (*packages.Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "packages")
	s, err := packages.Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unlock(dir) })
	return s, dir
}

// unlock lets the test's folder be removed.
func unlock(dir string) {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			os.Chmod(path, 0o700)
		}
		return nil
	})
}

func parse(t *testing.T, command string, args ...string) packages.Wanted {
	t.Helper()
	w, ok, err := packages.Parse(command, args)
	if !ok || err != nil {
		t.Fatalf("parse %s %q: %v %v", command, args, ok, err)
	}
	return *w
}

// cell runs a command without network in a root that has the system's folders,
// what was found, and nothing else, all read-only, as an ordinary user. It is given
// pairs of where something is and where it is to be seen.
const cell = `set -e
root=$1; shift
mount -t tmpfs none "$root"
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then mkdir -p "$root$2"; else mkdir -p "$root$(dirname "$2")"; [ -e "$root$2" ] || touch "$root$2"; fi
  mount --rbind -o ro "$1" "$root$2"; mount -o remount,bind,ro "$root$2"
  shift 2
done
shift
for link in /bin /lib /lib64; do [ ! -L $link ] || cp -P $link "$root/"; done
exec chroot --userspec=1000:1000 "$root" "$@"`

// initialize starts what was found, in a cell, and returns its server info. Only root
// can make one here; the tests of the driver do it as any user.
func initialize(t *testing.T, found packages.Found) (name, version string) {
	t.Helper()
	if os.Getuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("only root can make a cell")
		}
		t.Skip("only root can make a cell")
	}
	env := []string{"PATH=" + strings.Join(found.Path, ":") + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "MEMORY_FILE_PATH=/dev/null"}
	for k, v := range found.Env {
		env = append(env, k+"="+v)
	}
	run := append([]string{found.Command}, found.Args...)
	args := []string{"-n", "-m", "--propagation", "private", "sh", "-c", cell, "sh", t.TempDir()}
	for _, at := range append([]string{"/usr", "/bin", "/lib", "/lib64", "/dev", "/proc", found.At}, found.Reads...) {
		dir := at
		for seen, is := range found.Moves {
			if rest, ok := strings.CutPrefix(at, seen); ok {
				dir = is + rest
			}
		}
		if st, err := os.Lstat(dir); err == nil && st.Mode()&os.ModeSymlink == 0 {
			args = append(args, dir, at)
		}
	}
	cmd := exec.Command("unshare", append(append(args, "--"), run...)...)
	cmd.Env = env
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer watchdog.Stop()
	defer cmd.Wait()
	defer in.Close()
	defer cmd.Process.Kill()
	in.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}` + "\n"))
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var answer struct {
		Result struct {
			ServerInfo struct{ Name, Version string }
		}
	}
	if err != nil || json.Unmarshal(line, &answer) != nil || answer.Result.ServerInfo.Name == "" {
		t.Fatalf("initialize: %q %v\n%s", line, err, stderr.String())
	}
	return answer.Result.ServerInfo.Name, answer.Result.ServerInfo.Version
}

// writable lists what in a folder is writable for users other than its owner.
func writable(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err == nil && st.Mode()&os.ModeSymlink == 0 && st.Mode().Perm()&0o022 != 0 {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// logTo is a log whose lines are passed on.
func logTo(write func(line string)) *slog.Logger {
	return slog.New(slog.NewTextHandler(lineWriter(write), nil))
}

type lineWriter func(line string)

func (w lineWriter) Write(line []byte) (int, error) {
	w(string(line))
	return len(line), nil
}

func TestNPMWithoutNetwork(t *testing.T) {
	t.Parallel()
	need(t, "node", "npm", "unshare")
	var mu sync.Mutex
	var lines []string
	s, dir := open(t, packages.Options{Log: logTo(func(line string) { mu.Lock(); lines = append(lines, line); mu.Unlock() })})
	w := parse(t, "npx", "-y", memory(t), "--flag")

	// Two at once are one fetch.
	var both [2]packages.Found
	var errs [2]error
	var wg sync.WaitGroup
	for i := range both {
		wg.Go(func() { both[i], errs[i] = s.Get(t.Context(), w, 0) })
	}
	wg.Wait()
	reachable(t, errors.Join(errs[:]...))
	found := both[0]
	if found.Dir != both[1].Dir {
		t.Errorf("two folders: %s and %s", found.Dir, both[1].Dir)
	}
	began := 0
	for _, line := range lines {
		if strings.Contains(line, "fetching a package") && !strings.Contains(line, "step=") {
			began++
		}
	}
	if began != 1 {
		t.Errorf("%d fetches for two callers that want the same: %q", began, lines)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("the store has %v, want the one folder", entries)
	}

	if "@modelcontextprotocol/server-memory@"+found.Version != memory(t) || found.Name != "@modelcontextprotocol/server-memory" {
		t.Errorf("found %s %s", found.Name, found.Version)
	}
	if filepath.Base(found.Command) != "node" || len(found.Args) != 2 || !strings.HasSuffix(found.Args[0], "/dist/index.js") || found.Args[1] != "--flag" {
		t.Errorf("runs %s %q", found.Command, found.Args)
	}
	if _, err := os.Stat(found.Lock); err != nil {
		t.Error(err)
	}
	if left := writable(t, found.Dir); len(left) != 0 {
		t.Errorf("%d are writable for all users, such as %q", len(left), left[0])
	}
	if name, _ := initialize(t, found); name != "memory-server" {
		t.Errorf("the server is called %q", name)
	}
}

// TestPythonWithoutNetwork takes both ways: pip brings uv, and uv brings the
// server once more.
func TestPythonWithoutNetwork(t *testing.T) {
	t.Parallel()
	need(t, "python3", "unshare")
	for _, tt := range []struct {
		name string
		path func(t *testing.T) string
	}{
		{"pip", func(t *testing.T) string { return without(t, "uv") }},
		{"uv", func(t *testing.T) string {
			s, _ := open(t, packages.Options{Environ: environ("PATH=" + without(t, "uv"))})
			uv, err := s.Get(t.Context(), parse(t, "pipx", "run", "uv"), 0)
			reachable(t, err)
			if filepath.Base(uv.Command) != "uv" {
				t.Fatalf("uv is run by %s", uv.Command)
			}
			return filepath.Join(uv.Dir, strings.TrimPrefix(filepath.Dir(uv.Command), uv.At)) + ":" + os.Getenv("PATH")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, dir := open(t, packages.Options{Environ: environ("PATH=" + tt.path(t))})
			found, err := s.Get(t.Context(), parse(t, "uvx", clock(t), "--local-timezone", "UTC"), 0)
			reachable(t, err)
			if "mcp-server-time=="+found.Version != clock(t) {
				t.Errorf("found %s %s", found.Name, found.Version)
			}
			lock, err := os.ReadFile(found.Lock)
			if err != nil || !slices.Contains(strings.Split(string(lock), "\n"), clock(t)) {
				t.Errorf("the lock has no %s: %v\n%s", clock(t), err, lock)
			}
			if left := writable(t, found.Dir); len(left) != 0 {
				t.Errorf("%d are writable for all users, such as %q", len(left), left[0])
			}
			if out, _ := exec.Command("grep", "-rIlF", ".part/", found.Dir+"/venv/bin", found.Dir+"/venv/pyvenv.cfg").Output(); len(out) != 0 {
				t.Errorf("still name the folder of the fetch:\n%s", out)
			}
			if compiled, _ := filepath.Glob(found.Dir + "/venv/lib/python*/site-packages/mcp_server_time/__pycache__/*.pyc"); len(compiled) == 0 {
				t.Error("nothing is compiled")
			}
			if name, _ := initialize(t, found); name != "mcp-time" {
				t.Errorf("the server is called %q", name)
			}
			if entries, _ := os.ReadDir(dir); len(entries) != 1 {
				t.Errorf("the store has %v, want the one folder", entries)
			}
		})
	}
}

// without is the PATH without the folders that have a program.
func without(t *testing.T, program string) string {
	t.Helper()
	return strings.Join(slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, program))
		return err == nil
	}), ":")
}

// environ is our environment with some variables replaced.
func environ(vars ...string) func() []string {
	return func() []string { return append(os.Environ(), vars...) }
}

func TestWrongNames(t *testing.T) {
	t.Parallel()
	need(t, "npm", "python3")
	for _, w := range []packages.Wanted{
		parse(t, "npx", "@modelcontextprotocol/server-that-nobody-has-made"),
		parse(t, "npx", "@modelcontextprotocol/server-memory@0.0.77"),
		parse(t, "uvx", "mcp-server-that-nobody-has-made"),
	} {
		t.Run(w.Package, func(t *testing.T) {
			t.Parallel()
			s, dir := open(t, packages.Options{})
			_, err := s.Get(t.Context(), w, 0)
			if !errors.Is(err, packages.ErrNotFound) {
				reachable(t, err)
				t.Fatal("it was found")
			}
			if !strings.Contains(err.Error(), w.Package) || !strings.Contains(err.Error(), "check") {
				t.Errorf("the error does not name the package and the mend: %v", err)
			}
			if entries, _ := os.ReadDir(dir); len(entries) != 0 {
				t.Errorf("left behind: %v", entries)
			}
		})
	}
}

// processesOf are the processes whose home is in a folder.
func processesOf(dir string) (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil && strings.Contains(string(b), "\x00HOME="+dir) {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}

func TestCutInTheMiddle(t *testing.T) {
	t.Parallel()
	need(t, "npm")
	ctx, cancel := context.WithCancel(t.Context())
	s, dir := open(t, packages.Options{Log: logTo(func(line string) {
		if strings.Contains(line, "npm install") {
			cancel()
		}
	})})
	_, err := s.Get(ctx, parse(t, "npx", "@modelcontextprotocol/server-everything"), 0)
	if errors.Is(err, packages.ErrUnreachable) {
		reachable(t, err)
	}
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	s.Close()
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
	if pids := processesOf(dir); len(pids) != 0 {
		t.Errorf("still running: %v", pids)
	}
}

func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	need(t, "npm")
	s, dir := open(t, packages.Options{})
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), fetcherVar+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var output []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		output = append(output, lines.Text())
		if strings.Contains(lines.Text(), "npm install") {
			break
		}
	}
	running := len(processesOf(dir))
	cmd.Process.Kill()
	cmd.Wait()
	if running == 0 {
		t.Fatalf("no npm ran when it was killed: %q", output)
	}
	testkit.Succeeds(t, "no process is left", func() error {
		if left := processesOf(dir); len(left) > 0 {
			return fmt.Errorf("%v still run", left)
		}
		return nil
	})
	entries, _ := os.ReadDir(dir)
	if len(entries) != 1 || !strings.HasSuffix(entries[0].Name(), ".part") {
		t.Fatalf("left behind: %v, want one part", entries)
	}
	if err := s.Sweep(); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("left after the sweep: %v", entries)
	}
}
