package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/native/files"
	"github.com/tine-mcp/tine/internal/native/sqlite"
	"github.com/tine-mcp/tine/internal/wire"
	"github.com/tine-mcp/tine/internal/workspace"
)

// small is a world of two sessions, the second a fork of the first, each with all
// built-in servers that remember something and a workspace in layers.
type small struct {
	t        *testing.T
	dir      string
	sessions []string
	layers   *layer.Store
	trees    *layer.Store
	spaces   *workspace.Store
	d        *Driver
	marked   map[string][]string // what OnDamage heard, by session
}

var smallServers = []string{"memory", "sqlite", "files"}

func (w *small) open() {
	w.t.Helper()
	var err error
	open := func(name string) *layer.Store {
		s, e := layer.OpenStore(layer.Options{Dir: filepath.Join(w.dir, name)})
		err = errors.Join(err, e)
		return s
	}
	w.layers, w.trees = open("layers"), open("trees")
	if err != nil {
		w.t.Fatal(err)
	}
	w.spaces = workspace.NewStore(w.trees, workspace.Options{Dir: filepath.Join(w.dir, "work")})
	w.d = New(Options{Layers: w.layers, Dir: filepath.Join(w.dir, "templates"), Kinds: map[string]Kind{
		"memory": memoryKind(),
		"sqlite": {Remembers: true, New: func(e Env) (*mcp.Server, io.Closer, error) {
			h, err := layer.Open(e.Layers, e.State, sqlite.Machine())
			if err != nil {
				return nil, nil, err
			}
			s, end, err := sqlite.New(e.Settings, h, nil)
			return s, closers{end, h}, err
		}},
		"files": {New: func(e Env) (*mcp.Server, io.Closer, error) {
			s, err := files.New(e.Settings, e.Workspace)
			return s, nil, err
		}},
	}})
	w.marked = map[string][]string{}
	var states, spaces []string
	for _, s := range w.sessions {
		states = append(states, w.state(s, "memory"), w.state(s, "sqlite"))
		spaces = append(spaces, w.state(s, "space"))
	}
	if err := w.d.Recover(context.Background(), states, nil, true); err != nil {
		w.t.Fatal(err)
	}
	if err := w.spaces.Recover(context.Background(), spaces, nil, true); err != nil {
		w.t.Fatal(err)
	}
}

func (w *small) close() {
	w.d.Close()
	if err := errors.Join(w.spaces.Close(), w.trees.Close(), w.layers.Close()); err != nil {
		w.t.Error(err)
	}
}

func (w *small) state(session, server string) string {
	return filepath.Join(w.dir, "states", session, server)
}

func (w *small) spec(session, server string) driver.Spec {
	return driver.Spec{
		Server: server, Session: session, Builtin: server, State: w.state(session, server),
		OnDamage: func(err error) { w.marked[session] = append(w.marked[session], err.Error()) },
	}
}

// calls makes calls on a server of a session, as the gateway does: over a link. The
// answer to a call that fails is its error.
func (w *small) calls(session, server string, calls ...smallCall) (answers []string, err error) {
	ctx := context.Background()
	spec := w.spec(session, server)
	if server == "files" {
		ws, err := w.spaces.Open(w.state(session, "space"))
		if err != nil {
			err = driver.DamagedState(driver.Whose{Session: session}, err)
			spec.OnDamage(err)
			return nil, err
		}
		defer ws.Close()
		spec.Workspace = ws
	}
	inst, err := w.d.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	defer inst.Stop(ctx)
	cs, err := attach(inst)
	if err != nil {
		return nil, err
	}
	defer cs.Close()
	for _, c := range calls {
		res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: c.tool, Arguments: c.args})
		switch {
		case err != nil:
			answers = append(answers, lostPrefix+err.Error())
			var rpc *jsonrpc.Error
			if !errors.As(err, &rpc) || rpc.Code != wire.CodeTine || ourKind(rpc.Data) != api.KindLost {
				return nil, fmt.Errorf("%s failed otherwise: %w", c.tool, err)
			}
		default:
			answers = append(answers, fmt.Sprint(res.IsError, text(res)))
		}
	}
	return answers, nil
}

type closers []io.Closer

func (all closers) Close() (err error) {
	for _, c := range all {
		err = errors.Join(err, c.Close())
	}
	return err
}

const lostPrefix = "lost: "

func ourKind(data json.RawMessage) api.Kind {
	var m map[string]api.Error
	json.Unmarshal(data, &m)
	return m[wire.MetaTineError].Kind
}

type smallCall struct {
	tool string
	args map[string]any
}

// reads are calls that read everything that a server has.
var reads = map[string][]smallCall{
	"memory": {{"read_graph", nil}, {"search_nodes", map[string]any{"query": "of"}}},
	"sqlite": {
		{"query", map[string]any{"sql": "SELECT count(*), sum(length(t)) FROM x"}},
		{"query", map[string]any{"sql": "SELECT * FROM x WHERE t LIKE 'last%'"}},
		{"query", map[string]any{"sql": "PRAGMA integrity_check"}},
	},
	"files": {
		{"directory_tree", map[string]any{"path": "."}},
		{"read_text_file", map[string]any{"path": "big.txt"}},
		{"read_text_file", map[string]any{"path": "own.txt"}},
		{"read_multiple_files", map[string]any{"paths": []string{"small.txt", "big.txt", "own.txt"}}},
	},
}

func newSmall(t *testing.T) *small {
	w := &small{t: t, dir: t.TempDir(), sessions: []string{"ses_parent", "ses_child"}}
	w.open()
	ctx := context.Background()
	run := func(session, server string, calls ...smallCall) {
		t.Helper()
		answers, err := w.calls(session, server, calls...)
		for _, a := range answers {
			if !strings.HasPrefix(a, "false") {
				t.Fatal(a)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, session := range w.sessions {
		frozen := map[string]*driver.Snapshot{}
		var space *workspace.Frozen
		if i > 0 {
			for _, server := range smallServers[:2] {
				s, err := w.d.Freeze(ctx, w.spec(w.sessions[0], server), nil, "")
				if err != nil {
					t.Fatal(err)
				}
				frozen[server] = &s
			}
			f, err := w.spaces.Freeze(ctx, w.state(w.sessions[0], "space"), filepath.Join(w.dir, "frozen"))
			if err != nil {
				t.Fatal(err)
			}
			space = &f
		}
		for _, server := range smallServers[:2] {
			if err := w.d.Seed(ctx, w.spec(session, server), driver.Source{From: frozen[server]}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.spaces.Seed(ctx, w.state(session, "space"), workspace.Seed{From: space}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			run(session, "sqlite", smallCall{"execute", map[string]any{
				"sql": "CREATE TABLE x (t TEXT); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 200) INSERT INTO x SELECT 'row ' || i || printf('%400s', '') FROM n"}})
			run(session, "files",
				smallCall{"write_file", map[string]any{"path": "small.txt", "content": "small"}},
				smallCall{"write_file", map[string]any{"path": "big.txt", "content": strings.Repeat("0123456789abcde\n", 9000)}})
		}
		run(session, "memory", smallCall{"create_entities", map[string]any{"entities": []any{
			map[string]any{"name": session, "entityType": "t", "observations": []string{"of " + session}}}}})
		run(session, "sqlite", smallCall{"execute", map[string]any{"sql": "INSERT INTO x VALUES ('last of " + session + "')"}})
		run(session, "files", smallCall{"write_file", map[string]any{"path": "own.txt", "content": "of " + session}})
		for _, s := range frozen {
			if err := w.d.Discard(ctx, *s); err != nil {
				t.Fatal(err)
			}
		}
		if space != nil {
			if err := w.spaces.Discard(ctx, *space); err != nil {
				t.Fatal(err)
			}
		}
	}
	return w
}

// read reads everything of every session. Nothing may fail otherwise than lost.
func (w *small) read() map[string][]string {
	w.t.Helper()
	all := map[string][]string{}
	for _, session := range w.sessions {
		for _, server := range smallServers {
			answers, err := w.calls(session, server, reads[server]...)
			if err != nil {
				var ours *api.Error
				if !errors.As(err, &ours) || ours.Kind != api.KindLost {
					w.t.Fatalf("%s of %s: not reported as lost: %v", server, session, err)
				}
				answers = []string{lostPrefix + err.Error()}
			}
			all[session+" "+server] = answers
		}
	}
	return all
}

// TestDamageIsNeverServed damages each file of a small world, by a flipped byte or
// by cutting it, opens it again and reads everything: each answer is the original,
// or an error of kind lost that names session, server and file, and the session is
// marked.
func TestDamageIsNeverServed(t *testing.T) {
	w := newSmall(t)
	want := w.read()
	w.close()
	whole := map[string][]byte{}
	for _, pattern := range []string{"layers/*.log", "trees/*.log", "states/*/*/head"} {
		paths, err := filepath.Glob(filepath.Join(w.dir, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v, %v", pattern, paths, err)
		}
		for _, p := range paths {
			if whole[p], err = os.ReadFile(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	lost := 0
	for path, b := range whole { // more places are tried in the tests of layers
		for n := range 2 {
			damaged, what := slices.Clone(b), ""
			if at := len(b) * (3 + len(path)%2) / 7; n%2 == 0 {
				damaged[at] ^= 0x08
				what = fmt.Sprintf("byte %d of %s (%d bytes) flipped", at, path, len(b))
			} else {
				damaged = damaged[:at]
				what = fmt.Sprintf("%s cut to %d of %d bytes", path, at, len(b))
			}
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			w.open()
			got := w.read()
			for key, answers := range got {
				session, server, _ := strings.Cut(key, " ")
				for i, a := range answers {
					if len(answers) == len(want[key]) && a == want[key][i] {
						continue
					}
					if n%2 == 1 && i > 0 && strings.HasPrefix(answers[0], lostPrefix) {
						continue // a missing end is reported once, and marked
					}
					if !strings.HasPrefix(a, lostPrefix) {
						t.Fatalf("%s: %s answers %.200q, want %.200q", what, key, a, want[key][i])
					}
					if !strings.Contains(a, session) || !strings.Contains(a, filepath.Base(path)) && !strings.Contains(a, filepath.Dir(path)) ||
						server != "files" && !strings.Contains(a, server) {
						t.Fatalf("%s: the error names too little: %s", what, a)
					}
					if len(w.marked[session]) == 0 {
						t.Fatalf("%s: session %s is not marked", what, session)
					}
					lost++
				}
			}
			w.close()
			kept, _ := filepath.Glob(strings.TrimSuffix(path, ".log") + "-*.cut")
			if now, err := os.ReadFile(path); err != nil || len(kept) == 0 && !strings.HasPrefix(string(now), string(damaged)) {
				t.Fatalf("%s: the damaged file was changed (%v)", what, err)
			}
			for _, k := range kept {
				os.Remove(k)
			}
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if lost == 0 {
		t.Error("nothing was lost: the test damages nothing")
	}
	w.open()
	defer w.close()
	for key, answers := range w.read() {
		if !slices.Equal(answers, want[key]) {
			t.Errorf("%s: after all is well again: %.200q", key, answers)
		}
	}
}

// TestCutStateIsLostOnce: what is left of a log whose end is missing goes on, after
// one call that says so and the session's mark.
func TestCutStateIsLostOnce(t *testing.T) {
	w := newWorld(t)
	w.seed("a", nil)
	w.use("a", func(_ driver.Instance, cs *mcp.ClientSession) {
		if err := remember(cs, "x", "y"); err != nil {
			t.Fatal(err)
		}
	})
	w.close()
	logs, err := filepath.Glob(filepath.Join(w.dir, "layers", "*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	info, err := os.Stat(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(logs[0], info.Size()-40); err != nil {
		t.Fatal(err)
	}
	if err := w.open([]string{w.state("a")}); err != nil {
		t.Fatal(err)
	}
	spec := w.spec("a")
	var marked []error
	spec.OnDamage = func(err error) { marked = append(marked, err) }
	inst, err := w.Start(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Stop(context.Background())
	if len(marked) != 1 || !strings.Contains(marked[0].Error(), logs[0]) {
		t.Errorf("marked: %v", marked)
	}
	cs, err := attach(inst)
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	if _, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "read_graph"}); err == nil || !strings.Contains(err.Error(), logs[0]) {
		t.Errorf("the first call: %v", err)
	}
	res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "read_graph"})
	if err != nil || !strings.Contains(text(res), `"x"`) || strings.Contains(text(res), `"y"`) {
		t.Errorf("the second call: %v, %v", res, err)
	}
}
