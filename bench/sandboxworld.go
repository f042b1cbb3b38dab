package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// The servers that are measured, by what they are written in.
const (
	kindNode   = "node"
	kindPython = "python"
	kindGo     = "go"
	kindPyPI   = "pypi"
)

// Programs of others, relative to toolsFolder.
const (
	nodeServer = "node_modules/@modelcontextprotocol/server-memory/dist/index.js"
	pypiServer = "venv/bin/mcp-server-time"
)

//go:embed keeper.py
var keeperPython []byte

// boxKind is one server, which runs in sandboxes and, to compare with, without.
type boxKind struct {
	name    string
	command string
	args    []string
	// file names a variable with the path of a file that the server writes to.
	file string
	tell func(mark string) (tool string, arguments any) // nil where it remembers nothing
	ask  func(mark string) (tool string, arguments any)
	says string // what every answer has in it; a mark where it remembers
}

// native is the name of the entry without walls.
func (k *boxKind) native() string { return "native-" + k.name }

// boxKinds makes the servers ready, once; with --full there is one more.
func (t *trials) boxKinds(ctx context.Context, names ...string) ([]*boxKind, error) {
	if t.kinds == nil {
		all, err := t.g.makeKinds(ctx)
		if err != nil {
			return nil, err
		}
		t.kinds = all
	}
	var kinds []*boxKind
	for _, name := range names {
		for _, k := range t.kinds {
			if k.name == name && (name != kindPyPI || t.s.Full) {
				kinds = append(kinds, k)
			}
		}
	}
	return kinds, nil
}

func (g *rig) makeKinds(ctx context.Context) ([]*boxKind, error) {
	tools, err := toolsFolder()
	if err != nil {
		return nil, err
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, err
	}
	// In a folder of its own, which is all that a sandbox sees beside it.
	dir := filepath.Join(g.dir, "programs")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	script := filepath.Join(dir, "keeper.py")
	if err := os.WriteFile(script, keeperPython, 0o644); err != nil {
		return nil, err
	}
	program := filepath.Join(dir, "keeper")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "github.com/tine-mcp/tine/bench/keeper")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the static server, which takes the source: %w: %s", err, out)
	}
	put := func(mark string) (string, any) { return "put", map[string]any{"key": "mark", "value": mark} }
	all := func(string) (string, any) { return "all", struct{}{} }
	return []*boxKind{
		{
			name: kindNode, command: node, args: []string{filepath.Join(tools, nodeServer)}, file: "MEMORY_FILE_PATH",
			tell: func(mark string) (string, any) {
				entity := map[string]any{"name": mark, "entityType": "mark", "observations": []string{}}
				return "create_entities", map[string]any{"entities": []any{entity}}
			},
			ask: func(mark string) (string, any) { return "open_nodes", map[string]any{"names": []string{mark}} },
		},
		{name: kindPython, command: filepath.Join(tools, pythonProgram), args: []string{script}, tell: put, ask: all},
		{name: kindGo, command: program, tell: put, ask: all},
		{
			name: kindPyPI, command: filepath.Join(tools, pypiServer), says: "UTC",
			ask: func(string) (string, any) { return "get_current_time", map[string]any{"timezone": "UTC"} },
		},
	}, nil
}

// entry is what the config says of the server, in a sandbox or not.
func (k *boxKind) entry(dir string, sandboxed bool) map[string]any {
	e := map[string]any{"command": k.command, "args": k.args, "connect_timeout": boxTimeout.String()}
	file := filepath.Join(dir, "written-by-"+k.native())
	if sandboxed {
		e["sandbox"], file = true, "/tmp/written"
	}
	if k.file != "" {
		e["env"] = map[string]string{k.file: file}
	}
	return e
}

// boxTimeout bounds how long a sandbox may take on a machine with much to do.
const boxTimeout = 2 * time.Minute

// boxes is a gateway with servers in sandboxes, each of which it also runs without.
type boxes struct {
	*world
	state string
	kinds []*boxKind
}

// boxWorld starts it. With more keys the entries of sandboxes have those, too.
func (t *trials) boxWorld(ctx context.Context, name string, more map[string]any, kinds ...string) (*boxes, error) {
	all, err := t.boxKinds(ctx, kinds...)
	if err != nil {
		return nil, err
	}
	if err := t.g.guard(ctx); err != nil {
		return nil, err
	}
	b := &boxes{kinds: all, state: filepath.Join(t.g.dir, name, "state")}
	servers := map[string]any{}
	for _, k := range all {
		e := k.entry(t.g.dir, true)
		for key, value := range more {
			e[key] = value
		}
		servers[k.name], servers[k.native()] = e, k.entry(t.g.dir, false)
	}
	if b.world, err = t.g.newWorld(ctx, name, map[string]any{"servers": servers, "sessions": unbounded()}); err != nil {
		return nil, err
	}
	warm, _ := more["warm"].(int)
	if err := b.learned(ctx, warm); err != nil {
		b.gate.stop()
		return nil, err
	}
	return b, nil
}

// learned waits until the gateway knows what the servers list, and the sandboxes that
// it asked have ended. Of each server so many are warm.
func (b *boxes) learned(ctx context.Context, warm int) error {
	ctx, cancel := context.WithTimeout(ctx, boxTimeout)
	defer cancel()
	if _, err := b.client.Tools(ctx, ""); err != nil {
		return b.gate.explain(fmt.Errorf("list the tools: %w", err))
	}
	for {
		found, err := boxRecords(filepath.Join(b.state, "instances"), "")
		if err != nil || len(found) <= warm*len(b.kinds) {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return b.gate.explain(fmt.Errorf("%d sandboxes are there before a session is open: %w", len(found), context.Cause(ctx)))
		}
	}
}

// end closes what is open and stops the gateway. What is left after that, which
// goes on by itself, is ended, and is an error where all went well.
func (b *boxes) end(err *error) {
	ctx, cancel := context.WithTimeout(context.Background(), boxTimeout)
	defer cancel()
	var ids []string
	var lerr error
	for s, err := range b.client.AllSessions(ctx, client.SessionQuery{}) {
		if lerr = err; err != nil {
			break
		}
		ids = append(ids, s.ID)
	}
	lerr = errors.Join(lerr, b.close(ctx, ids...))
	b.gate.stop()
	if left := sweepBoxes(b.state); len(left) > 0 {
		lerr = errors.Join(lerr, fmt.Errorf("the gateway left %s", strings.Join(left, ", ")))
	}
	if *err == nil {
		*err = lerr
	}
}

// eager opens a session and waits until its one server runs.
func (b *boxes) eager(ctx context.Context, server string) (string, error) {
	s, err := b.client.OpenSession(ctx, api.NewSession{Servers: []string{server}, Eager: true})
	if err != nil {
		return "", b.gate.explain(fmt.Errorf("open a session with %s: %w", server, err))
	}
	return s.ID, nil
}

// told has a server write a mark down.
func (b *boxes) told(ctx context.Context, session string, k *boxKind) (mark string, err error) {
	if k.tell == nil {
		return k.says, nil
	}
	mark = b.newMark()
	tool, arguments := k.tell(mark)
	_, err = b.call(ctx, session, k.name+"__"+tool, arguments)
	return mark, err
}

// asked has a server answer, and looks whether it knows a mark.
func (b *boxes) asked(ctx context.Context, session, server string, k *boxKind, mark string) error {
	tool, arguments := k.ask(mark)
	got, err := b.call(ctx, session, server+"__"+tool, arguments)
	return knows(got, mark, err)
}

// parent opens a session with a server in a sandbox and has it write something
// down.
func (b *boxes) parent(ctx context.Context, k *boxKind) (session, mark string, err error) {
	if session, err = b.eager(ctx, k.name); err == nil {
		mark, err = b.told(ctx, session, k)
	}
	return session, mark, err
}

// Metrics of what is prepared, by server.
const (
	gaugeSlots  = "tine_pool_slots"
	gaugeReady  = "tine_pool_ready"
	gaugeParked = "tine_pool_parked"
)

// gauge reads one of them; 0 where there is none.
func (b *boxes) gauge(ctx context.Context, name, server string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.gate.url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+b.gate.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("read the metrics: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("read the metrics: %s", res.Status)
	}
	series := fmt.Sprintf("%s{server=%q} ", name, server)
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), series); ok {
			n, err := strconv.ParseFloat(value, 64)
			return int(n), err
		}
	}
	return 0, lines.Err()
}

// until waits until a metric of a server has a value.
func (b *boxes) until(ctx context.Context, name, server string, want int) error {
	return b.steady(ctx, name, server, want, want, 0)
}

// steady waits until a metric of a server is within bounds and has not changed for
// some time.
func (b *boxes) steady(ctx context.Context, name, server string, least, most int, stays time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, boxTimeout)
	defer cancel()
	last, since := -1, time.Now()
	for {
		got, err := b.gauge(ctx, name, server)
		if err == nil && got != last {
			last, since = got, time.Now()
		}
		if err == nil && got >= least && got <= most && time.Since(since) >= stays {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-b.gate.exited:
			return b.gate.explain(errors.New("it ended while it was waited for"))
		case <-ctx.Done():
			return b.gate.explain(fmt.Errorf("%s of %s is %d and should be from %d to %d: %w", name, server, last, least, most, context.Cause(ctx)))
		}
	}
}

// prepared waits until the slots of a server are filled again, as they are for who
// forks now and then: at least as many as the config has where it does not say,
// and more where more were wanted at once. Those of the others are waited for too:
// making them would be in the times.
func (b *boxes) prepared(ctx context.Context, k *boxKind) error {
	const slots, longer = 2, 400 * time.Millisecond // than it takes to make one
	for _, other := range b.kinds {
		if err := b.steady(ctx, gaugeSlots, other.name, 0, math.MaxInt, longer); err != nil {
			return err
		}
	}
	return b.steady(ctx, gaugeSlots, k.name, slots, math.MaxInt, longer)
}
