//go:build unix

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/torture"
)

// presetWay is one way to run presets: a driver, and what an entry says beside
// its preset's name.
type presetWay struct {
	driver   string
	children int // of a fork
	cases    []presetCase
	// instances says how many instances of its own a session has; nil where that
	// can't be seen.
	instances func(t testing.TB, session string) int
	// left names what is there of sessions that were closed, beyond what every
	// gateway shows.
	left func(ctx context.Context, g *gateway) error
}

// presetCase is one preset run in one way.
type presetCase struct {
	preset string
	more   string // of its entry, after preset and driver
	fork   string // what a fork of it carries

	shelf *shelf // of a server that remembers
	// Of one that does not: a typical tool.
	tool string
	args object
	want string
}

func (c presetCase) yaml(driver string) string {
	more := c.more
	if more != "" {
		more = ", " + more
	}
	return fmt.Sprintf("  %s: {preset: %s, driver: %s, connect_timeout: 5m%s}\n", c.preset, c.preset, driver, more)
}

// presetStandIns makes programs called npx and uvx that run what setup.sh
// installed: the real ones would fetch it. It returns the environment in which
// they are found first.
func presetStandIns(t testing.TB) []string {
	t.Helper()
	need(t, node, npmFilesystem, npmMemory, npmEverything, pyTime, pyFetch, pyDuckDB)
	dir := t.TempDir()
	for name, script := range map[string]string{
		"npx": `#!/bin/sh
[ "$1" = -y ] || { echo "npx would ask before it installs" >&2; exit 2; }
package=$2
shift 2
exec "` + filepath.Join(toolsDir(), node) + `" "` + toolsDir() + `/node_modules/$package/dist/index.js" "$@"
`,
		"uvx": `#!/bin/sh
[ "$1" = --from ] && exit 0 # what it is asked to fetch is there
package=${1%%@*}
shift
exec "` + toolsDir() + `/venv/bin/$package" "$@"
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return toolEnv(t, "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// pyDuckDB is relative to toolsDir.
const pyDuckDB = "venv/bin/mcp-server-motherduck"

var (
	presetEcho = presetCase{preset: "everything", tool: "echo", args: object{"message": "over and out"}, want: "Echo: over and out"}
	presetTime = presetCase{preset: "time", tool: "convert_time", args: object{"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}, want: "21:00"}
)

func presetFetch(url string) presetCase {
	return presetCase{preset: "fetch", tool: "fetch", args: object{"url": url}, want: "with words on it"}
}

// but is a case with another fork and more in its entry.
func (c presetCase) but(fork, more string) presetCase {
	c.fork, c.more = fork, more
	return c
}

// TestPresetBuiltin runs every preset that is in the binary.
func TestPresetBuiltin(t *testing.T) {
	t.Parallel()
	page := httptest.NewServer(presetPage)
	t.Cleanup(page.Close)
	w := presetWay{driver: "builtin", children: 3, cases: []presetCase{
		{preset: "filesystem", fork: "memory", shelf: filesShelf("filesystem")},
		{preset: "memory", fork: "memory", shelf: memoryShelf("memory")},
		presetEcho.but("share", ""),
		presetFetch(page.URL+"/page").but("share", "settings: {allow_private: true}"),
		presetTime.but("share", ""),
	}}
	g := w.start(t)
	w.run(t, g)
}

// TestPresetProcess runs the originals of npm and PyPI, as npx and uvx would.
func TestPresetProcess(t *testing.T) {
	t.Parallel()
	env := presetStandIns(t)
	page := httptest.NewServer(presetPage)
	t.Cleanup(page.Close)
	w := presetWay{driver: "process", children: torture.Or(1, 2), left: presetProcesses, cases: []presetCase{
		{preset: "filesystem", fork: "files", shelf: filesShelf("filesystem")},
		{preset: "duckdb", fork: "files", shelf: duckShelf("duckdb")},
		{preset: "memory", fork: "files", shelf: memoryShelf("memory")},
		presetEcho.but("fresh", ""),
		presetFetch(page.URL+"/page").but("share", "args: [--allow-private-ips]"),
		presetTime.but("share", ""),
	}}
	g := w.start(t, env...)
	w.run(t, g)
}

// TestPresetDocker runs them in containers.
func TestPresetDocker(t *testing.T) {
	t.Parallel()
	e := needPresetEngine(t)
	in := func(program, more string) string {
		return fmt.Sprintf("docker: {host: %q, image: %s, pull: never, entrypoint: [%s]%s}", e.host, serversImage, program, more)
	}
	files, memory, duck := filesShelf("filesystem"), memoryShelf("memory"), duckShelf("duckdb")
	w := presetWay{driver: "docker", children: 1, instances: e.containers, cases: []presetCase{
		{preset: "filesystem", fork: "files", more: in("mcp-server-filesystem", ""), shelf: files},
		{preset: "duckdb", fork: "files", more: in("mcp-server-motherduck", ""), shelf: duck},
		{preset: "memory", fork: "files", more: in("mcp-server-memory", ""), shelf: memory},
		presetEcho.but("fresh", in("mcp-server-everything", "")),
		presetFetch(e.page(t)).but("share", in("mcp-server-fetch", ", command: [--allow-private-ips]")),
		presetTime.but("share", in("mcp-server-time", "")),
	}}
	g := w.start(t)
	c := g.client(t)
	s := openSession(t, c, api.NewSession{Servers: []string{"everything"}})
	mustUse(t, c, s.ID, "everything__echo", presetEcho.args)
	id := e.gatewayOf(t, s.ID)
	w.left = func(ctx context.Context, _ *gateway) error { return e.leftOf(ctx, id, false) }
	w.run(t, g)
	e.nothingLeft(t, id)
}

// start runs a gateway with all presets of one way.
func (w presetWay) start(t *testing.T, env ...string) *gateway {
	t.Helper()
	config := patientLists + "servers:\n"
	for _, c := range w.cases {
		config += c.yaml(w.driver)
	}
	return startGateway(t, config, env...)
}

// run uses each preset in a session of its own, forks it, and holds that nothing
// of it is left.
func (w presetWay) run(t *testing.T, g *gateway) {
	c := g.client(t)
	for _, p := range w.cases {
		t.Run(p.preset, func(t *testing.T) {
			s := openSession(t, c, api.NewSession{Servers: []string{p.preset}})
			if p.shelf != nil {
				w.remembers(t, c, p, s.ID)
			} else {
				w.forgets(t, c, p, s.ID)
			}
			w.member(t, c, p, s.ID)
		})
	}
	if err := closeAll(t.Context(), c); err != nil {
		t.Error(err)
	}
	if w.left != nil {
		if err := eventually(func() error { return w.left(t.Context(), g) }); err != nil {
			t.Errorf("after all was closed: %v", err)
		}
	}
	// Shared servers end with their gateway.
	if code, err := g.stop(); err != nil || code != 0 {
		t.Fatalf("the gateway ended with %d, %v", code, err)
	}
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, g)
}

// presetProcesses are those that are left of sessions, and not of servers that
// all share.
func presetProcesses(_ context.Context, g *gateway) error {
	for _, pid := range g.servers() {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if line := string(cmdline); !strings.Contains(line, "mcp-server-fetch") && !strings.Contains(line, "mcp-server-time") {
			return fmt.Errorf("process %d is left: %q", pid, line)
		}
	}
	return nil
}

// member holds what the session says of its one server.
func (w presetWay) member(t *testing.T, c *client.Client, p presetCase, session string) {
	t.Helper()
	s, err := c.Session(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	scope := "session"
	if p.fork == "share" {
		scope = "shared"
	}
	for _, m := range s.Members {
		if m.Server == p.preset {
			if m.Driver != w.driver || m.Fork != p.fork || m.Scope != scope {
				t.Errorf("%s: %+v, want driver %s, scope %s and fork %s", p.preset, m, w.driver, scope, p.fork)
			}
			if want := map[bool]int{true: 1}[scope == "session"]; w.instances != nil && w.instances(t, session) != want {
				t.Errorf("%s: the session has %d instances of its own, want %d", p.preset, w.instances(t, session), want)
			}
			return
		}
	}
	t.Errorf("%s is no member of its session: %+v", p.preset, s.Members)
}

// remembers forks a server that has state: children go on from it, and whatever
// one of them, the parent or a grandchild does, the others don't see.
func (w presetWay) remembers(t *testing.T, c *client.Client, p presetCase, session string) {
	t.Helper()
	p.shelf.mustPut(t, c, session, "a", "before")
	p.shelf.mustPut(t, c, session, "b", "before-too")
	before := map[string]string{"a": "before", "b": "before-too"}
	p.shelf.mustHold(t, c, session, before)

	holds := map[string]map[string]string{}
	put := func(session, key, value string) {
		t.Helper()
		p.shelf.mustPut(t, c, session, key, value)
		holds[session][key] = value
	}
	for _, child := range fork(t, c, session, w.children) {
		holds[child.ID] = maps.Clone(before)
	}
	holds[session] = maps.Clone(before)
	put(session, "parent", "later")
	for child := range maps.Clone(holds) {
		if child != session {
			p.shelf.mustHold(t, c, child, before)
			put(child, "own", child)
		}
	}
	for child := range maps.Clone(holds) {
		if child != session {
			grandchild := fork(t, c, child, 1)[0].ID
			holds[grandchild] = maps.Clone(holds[child])
			put(grandchild, "grand", grandchild)
			put(child, "own-too", child)
			break
		}
	}
	for id, want := range holds {
		p.shelf.mustHold(t, c, id, want)
		w.member(t, c, p, id)
	}
}

// forgets forks a server that has no state: it works for children, too.
func (w presetWay) forgets(t *testing.T, c *client.Client, p presetCase, session string) {
	t.Helper()
	ids := []string{session}
	call := func(session string) {
		t.Helper()
		if got := mustUse(t, c, session, p.preset+"__"+p.tool, p.args); !strings.Contains(got, p.want) {
			t.Errorf("%s in %s answers %q, want %q in it", p.tool, session, got, p.want)
		}
	}
	call(session)
	for _, child := range fork(t, c, session, w.children) {
		ids = append(ids, child.ID)
	}
	for _, id := range ids {
		call(id)
		w.member(t, c, p, id)
	}
}
