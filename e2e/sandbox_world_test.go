//go:build linux && (amd64 || arm64)

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// sandServer builds the server that keeps all it knows in its memory, once.
var sandServer = built("sandserver")

// sandboxed has no bound on the start that a busy machine could miss: four gateways
// at once each start a server, one more to learn its lists, and slots.
const sandboxed = "sandbox: true\n    connect_timeout: 5m"

// sand is the id of the server that is sandserver, and shelf what it keeps.
const sand = "sand"

var sandShelf = programShelf(sand)

// yamlSand renders it, in a sandbox.
func yamlSand(t testing.TB, args []string, more ...string) string {
	t.Helper()
	program, err := sandServer()
	if err != nil {
		t.Fatal(err)
	}
	if len(more) == 0 || !strings.HasPrefix(more[0], "sandbox:") {
		more = append([]string{sandboxed}, more...)
	}
	return yamlServer(sand, program, args, more...)
}

// A life is what sandserver says of the start that it goes back to.
type life struct {
	ID         string
	PID        int
	Handshakes int
	Forked     int
	Ticks      int
}

func lifeOf(ctx context.Context, c *client.Client, session string) (l life, err error) {
	text, err := use(ctx, c, session, sand+"__life", object{})
	if err == nil {
		err = decodeInto([]byte(text), &l)
	}
	return l, err
}

func mustLive(t testing.TB, c *client.Client, session string) life {
	t.Helper()
	l, err := lifeOf(t.Context(), c, session)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// goesOn holds that a session's server is the one that was seen earlier, or a copy
// of it, and was neither started nor greeted since.
func goesOn(t testing.TB, c *client.Client, session string, was life) life {
	t.Helper()
	now, err := lifeOf(t.Context(), c, session)
	if err != nil {
		t.Errorf("in %s: %v", session, err)
		return now
	}
	if now.ID != was.ID || now.PID != was.PID || now.Handshakes != was.Handshakes || now.Ticks < was.Ticks {
		t.Errorf("in %s the server says %+v of itself, which does not continue %+v", session, now, was)
	}
	return now
}

// each does something for all sessions, some at once.
func each(t testing.TB, sessions []api.OpenedSession, do func(n int, id string) error) {
	t.Helper()
	errs := make(chan error, len(sessions))
	places := make(chan struct{}, 8)
	for n, s := range sessions {
		go func() {
			places <- struct{}{}
			defer func() { <-places }()
			errs <- do(n, s.ID)
		}()
	}
	for range sessions {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// A cell is a gateway with sandboxes, and what is known of them.
type cell struct {
	*gateway
	mu    sync.Mutex
	names map[string]bool // what gVisor calls them, of all that were seen
}

func startCell(t testing.TB, config string, env ...string) *cell {
	t.Helper()
	w := newCell(t, config, env...)
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	return w
}

func newCell(t testing.TB, config string, env ...string) *cell {
	t.Helper()
	w := &cell{names: map[string]bool{}}
	w.gateway = newGateway(t, config, env...)
	return w
}

// note remembers the sandboxes that there are, to look for what is left of them,
// and returns the processes that they are, by the folder of the instance.
func (w *cell) note() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	boxes := map[string]int{}
	for _, below := range []string{"instances", "sandbox/slots"} {
		records, _ := filepath.Glob(filepath.Join(w.state(), below, "*", "sandbox.json"))
		for _, path := range records {
			var r struct {
				Sandbox string `json:"sandbox"`
				PID     int    `json:"pid"`
			}
			data, err := os.ReadFile(path)
			if err != nil || json.Unmarshal(data, &r) != nil || r.Sandbox == "" {
				continue // on its way
			}
			w.names[r.Sandbox] = true
			if below == "instances" {
				boxes[filepath.Dir(path)] = r.PID
			}
		}
	}
	return boxes
}

// over closes everything, ends the gateway in good order, and holds that nothing
// is left of any sandbox: no process, mount, cgroup or folder.
func (w *cell) over(t testing.TB) {
	t.Helper()
	c := w.client(t)
	w.note()
	if err := closeAll(t.Context(), c); err != nil {
		t.Error(err)
	}
	if err := eventually(func() error {
		var errs []error
		for dir := range w.note() {
			errs = append(errs, fmt.Errorf("instance %s is left", dir))
		}
		for _, dir := range []string{"instances", "snapshots"} {
			entries, err := os.ReadDir(filepath.Join(w.state(), dir))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
			for _, e := range entries {
				if !strings.HasPrefix(e.Name(), "warm_") { // which stay for the next
					errs = append(errs, fmt.Errorf("%s/%s is left", dir, e.Name()))
				}
			}
		}
		return errors.Join(errs...)
	}); err != nil {
		t.Errorf("after all was closed: %v", err)
	}
	if code, err := w.stop(); err != nil || code != 0 {
		t.Errorf("the gateway ended with %d, %v", code, err)
	}
	w.gone(t)
}

// gone holds that a gateway that ended left nothing of a sandbox.
func (w *cell) gone(t testing.TB) {
	t.Helper()
	if err := eventually(func() error {
		var errs []error
		for _, pid := range w.servers() {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			errs = append(errs, fmt.Errorf("process %d is left: %q", pid, line))
		}
		if mounts, err := os.ReadFile("/proc/self/mountinfo"); err == nil && strings.Contains(string(mounts), " "+w.state()+"/") {
			errs = append(errs, errors.New("a mount below the state folder is left"))
		}
		for _, dir := range []string{"instances", "snapshots", "sandbox/run", "sandbox/mounts", "sandbox/slots"} {
			entries, err := os.ReadDir(filepath.Join(w.state(), dir))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
			for _, e := range entries {
				errs = append(errs, fmt.Errorf("%s/%s is left", dir, e.Name()))
			}
		}
		for _, group := range cgroups(w.names) {
			errs = append(errs, fmt.Errorf("cgroup %s is left", group))
		}
		return errors.Join(errs...)
	}); err != nil {
		t.Errorf("after the gateway ended: %v", err)
	}
}

// cgroups finds those of sandboxes.
func cgroups(names map[string]bool) (found []string) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && names[strings.TrimSuffix(d.Name(), ".scope")] {
			found = append(found, path)
		}
		return nil // what goes meanwhile is gone
	})
	return found
}

// gauge reads one metric of a server; 0 where there is none.
func gauge(ctx context.Context, g *gateway, name, server string) (int, error) {
	r, err := g.record()
	if err != nil {
		return 0, err
	}
	_, body, err := g.get(ctx, "/metrics", r.Token)
	if err != nil {
		return 0, err
	}
	series := fmt.Sprintf("%s{server=%q} ", name, server)
	for lines := bufio.NewScanner(strings.NewReader(body)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), series); ok {
			f, err := strconv.ParseFloat(value, 64)
			return int(f), err
		}
	}
	return 0, nil
}

// becomes waits until a metric of a server has a value.
func becomes(t testing.TB, g *gateway, name, server string, want int) {
	t.Helper()
	if err := eventually(func() error {
		got, err := gauge(t.Context(), g, name, server)
		if err == nil && got != want {
			err = fmt.Errorf("%s of %s is %d, want %d", name, server, got, want)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// rings waits until a shelf of sandserver has this and nothing else: some of it is
// put by a timer.
func rings(t testing.TB, c *client.Client, session string, want map[string]string) error {
	return eventually(func() error {
		got, err := sandShelf.all(t.Context(), sandShelf.on(c, session))
		if err != nil {
			return final{err}
		}
		if d := differ(got, want); d != "" {
			return fmt.Errorf("%s of %s:%s", sand, session, d)
		}
		return nil
	})
}

func absolute(t testing.TB, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
