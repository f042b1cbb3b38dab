//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// stateServer builds the server that keeps all it knows in a directory, once.
var stateServer = built("stateserver")

// yamlState renders a server that is run and declares its state.
func yamlState(t testing.TB, id string, more ...string) string {
	t.Helper()
	program, err := stateServer()
	if err != nil {
		t.Fatal(err)
	}
	return yamlServer(id, program, []string{"-dir", "${state.data}"}, append([]string{"state: [data]"}, more...)...)
}

// yamlMemory is the reference memory server with its state declared.
func yamlMemory(t testing.TB, id string) string {
	t.Helper()
	paths := need(t, node, npmMemory)
	return yamlServer(id, paths[0], paths[1:], `env: {MEMORY_FILE_PATH: "${state.data}/graph.jsonl"}`, "state: [data]", "connect_timeout: 5m")
}

const yamlBuiltins = "  mem: {builtin: memory}\n  files: {builtin: files}\n  db: {builtin: sqlite}\n"

// client talks to the gateway's control API as its owner does.
func (g *gateway) client(t testing.TB) *client.Client {
	t.Helper()
	r, err := g.record()
	if err != nil {
		t.Fatal(err)
	}
	return g.clientAs(t, r.Token)
}

func (g *gateway) clientAs(t testing.TB, token string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: g.url, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A toolFailure is the result of a tool that says it failed.
type toolFailure struct {
	text string
	api  *api.Error // nil where it is the tool's own failure
}

func (e *toolFailure) Error() string { return e.text }

// use calls a tool in a session and returns the text of its result.
func use(ctx context.Context, c *client.Client, session, tool string, args any) (string, error) {
	arguments, err := json.Marshal(args)
	if err != nil {
		return "", err
	}
	raw, err := c.CallIn(ctx, session, tool, arguments)
	if err != nil {
		return "", fmt.Errorf("%s in %s: %w", tool, session, err)
	}
	var r toolResult
	if err := decodeInto(raw, &r); err != nil {
		return "", err
	}
	if !r.IsError {
		return r.text(), nil
	}
	failure := &toolFailure{text: r.text()}
	if e := r.Meta["tine/error"]; e != nil {
		failure.api = new(api.Error)
		if err := decodeInto(e, failure.api); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("%s in %s: %w", tool, session, failure)
}

func mustUse(t testing.TB, c *client.Client, session, tool string, args any) string {
	t.Helper()
	text, err := use(t.Context(), c, session, tool, args)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// kindOf is what an error says about whose failure it is; nil where it says
// nothing, as when the gateway was killed.
func kindOf(err error) *api.Error {
	var failure *toolFailure
	if errors.As(err, &failure) {
		return failure.api
	}
	var e *api.Error
	errors.As(err, &e)
	return e
}

func openSession(t testing.TB, c *client.Client, in api.NewSession) *api.OpenedSession {
	t.Helper()
	s, err := c.OpenSession(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fork(t testing.TB, c *client.Client, session string, count int) []api.OpenedSession {
	t.Helper()
	f, err := c.Fork(t.Context(), session, api.ForkRequest{Count: count})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Sessions) != count || f.Parent != session {
		t.Fatalf("a fork of %s into %d gave %+v", session, count, f)
	}
	return f.Sessions
}

// openSessions are the ids of explicitly opened sessions.
func openSessions(ctx context.Context, c *client.Client, q client.SessionQuery) (map[string]api.Session, error) {
	all := map[string]api.Session{}
	for s, err := range c.AllSessions(ctx, q) {
		if err != nil {
			return nil, err
		}
		if s.Kind == api.SessionOpened {
			all[s.ID] = s
		}
	}
	return all, nil
}

// closeAll closes every explicitly opened session and deletes every snapshot.
func closeAll(ctx context.Context, c *client.Client) error {
	all, err := openSessions(ctx, c, client.SessionQuery{})
	if err != nil {
		return err
	}
	errs := make(chan error, len(all))
	places := make(chan struct{}, 8)
	for id := range all {
		go func() {
			places <- struct{}{}
			defer func() { <-places }()
			errs <- c.CloseSession(ctx, id)
		}()
	}
	for range all {
		err = errors.Join(err, <-errs)
	}
	for s, lerr := range c.AllSnapshots(ctx, client.SnapshotQuery{Auto: true}) {
		if lerr != nil {
			return errors.Join(err, lerr)
		}
		err = errors.Join(err, c.DeleteSnapshot(ctx, s.ID))
	}
	return err
}

// nothingLeft holds that a gateway without sessions has no process, mount or
// folder of any.
func nothingLeft(t testing.TB, g *gateway) {
	t.Helper()
	c := g.client(t)
	if err := eventually(func() error { return leftovers(t.Context(), g, c) }); err != nil {
		t.Errorf("after all was closed: %v", err)
	}
}

func leftovers(ctx context.Context, g *gateway, c *client.Client) error {
	var errs []error
	all, err := openSessions(ctx, c, client.SessionQuery{})
	if err != nil {
		return final{err}
	}
	for id := range all {
		errs = append(errs, fmt.Errorf("session %s is open", id))
	}
	// Implicit ones, such as a caller's default one, have folders too.
	implicit := map[string]bool{"shared": true}
	for s, err := range c.AllSessions(ctx, client.SessionQuery{}) {
		if err != nil {
			return final{err}
		}
		implicit[s.ID] = s.Kind != api.SessionOpened
	}
	for _, pid := range g.servers() {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		errs = append(errs, fmt.Errorf("process %d is left: %q", pid, cmdline))
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err == nil && strings.Contains(string(mounts), " "+g.state()+"/") {
		errs = append(errs, errors.New("a mount below the state folder is left"))
	}
	for _, dir := range []string{"sessions", "snapshots", "instances", "layers", "agents/runs", "agents/sessions"} {
		root := filepath.Join(g.state(), dir)
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil // removed meanwhile
			case err != nil:
				return err
			case d.IsDir() && dir == "sessions" && implicit[d.Name()]:
				return fs.SkipDir
			case path == root, d.IsDir() && dir == "layers": // one folder for each who keeps layers
				return nil
			}
			errs = append(errs, fmt.Errorf("%s is left", strings.TrimPrefix(path, g.state()+"/")))
			return nil
		})
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// servers are the processes of the gateway's sessions: whatever has a file of
// the state folder open, or was started with a path in it.
func (g *gateway) servers() []int {
	found := map[int]bool{}
	for _, pid := range holders(g.state()) {
		found[pid] = true
	}
	for _, what := range []string{"environ", "cmdline"} {
		paths, _ := filepath.Glob("/proc/[0-9]*/" + what)
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(data), g.state()+"/") {
				continue
			}
			var pid int
			fmt.Sscanf(path, "/proc/%d/", &pid)
			found[pid] = true
		}
	}
	delete(found, os.Getpid())
	if g.cmd != nil {
		delete(found, g.cmd.Process.Pid)
	}
	return slices.Sorted(maps.Keys(found))
}
