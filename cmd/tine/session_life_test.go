package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
)

// shell runs command lines against a gateway that runs in this process.
type shell struct {
	t     *testing.T
	state string
}

// newShell starts a gateway with the built-in defaults until the test ends.
func newShell(t *testing.T) shell {
	t.Helper()
	cfg := config.Default()
	cfg.Listen = "127.0.0.1:0"
	state := t.TempDir()
	runService(t, cfg, state)
	gatewayOf(t, state)
	return shell{t, state}
}

// try runs one command line, with any outcome.
func (s shell) try(args ...string) (stdout, stderr string, code int) {
	s.t.Helper()
	return inFolder(s.t, s.state, args...)
}

// ok runs one that must work, and returns what it printed.
func (s shell) ok(args ...string) string {
	s.t.Helper()
	stdout, stderr, code := s.try(args...)
	if code != 0 {
		s.t.Fatalf("tine %q: exit %d, %s", args, code, stderr)
	}
	return strings.TrimSpace(stdout)
}

// fails runs one that must not work, and holds what it says.
func (s shell) fails(code int, says string, args ...string) {
	s.t.Helper()
	stdout, stderr, got := s.try(args...)
	if got != code || !strings.Contains(stderr, says) {
		s.t.Errorf("tine %q: exit %d, %q, %q; want exit %d and %q", args, got, stdout, stderr, code, says)
	}
}

// learn makes an entity in a session's memory; names lists those that it has.
func (s shell) learn(session, name string) {
	s.t.Helper()
	s.ok("call", "--session", session, "memory__create_entities", `entities:=[{"name":"`+name+`","entityType":"t","observations":[]}]`)
}

func (s shell) names(session string) string {
	s.t.Helper()
	var graph struct {
		Entities []struct{ Name string }
	}
	raw := s.ok("call", "--session", session, "memory__read_graph")
	if err := json.Unmarshal([]byte(raw), &graph); err != nil {
		s.t.Fatalf("%v: %s", err, raw)
	}
	var all []string
	for _, e := range graph.Entities {
		all = append(all, e.Name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (s shell) holds(session, want string) {
	s.t.Helper()
	if got := s.names(session); got != want {
		s.t.Errorf("session %s knows %q, want %q", session, got, want)
	}
}

// A world is opened, forked, frozen, rewound and closed by command lines alone.
func TestSessionLife(t *testing.T) {
	s := newShell(t)
	root := s.ok("session", "open", "--label", "run=7", "--ttl", "2h")
	if !wholeID.MatchString(root) {
		t.Fatalf("open printed %q", root)
	}
	short := root[len(sessionPrefix) : len(root)-2]
	s.learn(short, "first")
	s.ok("call", "--session", root, "files__write_file", "path=/workspace/a.txt", "content=of the root")
	if tools := s.ok("tools", "--session", short, "memory"); !strings.Contains(tools, "memory__read_graph") {
		t.Errorf("tools of the session: %s", tools)
	}
	kids := strings.Fields(s.ok("session", "fork", short, "--count", "3", "--label", "try=a"))
	if len(kids) != 3 {
		t.Fatalf("fork printed %q", kids)
	}
	s.learn(kids[0], "second")
	s.ok("call", "--session", kids[0], "files__write_file", "path=/workspace/a.txt", "content=of the child")
	s.learn(root, "third")
	s.holds(root, "first third")
	s.holds(kids[0], "first second")
	s.holds(kids[1], "first")
	if text := s.ok("call", "--session", root, "files__read_text_file", "path=/workspace/a.txt"); text != "of the root" {
		t.Errorf("a child's file is seen in its parent: %q", text)
	}

	snap := s.ok("session", "snapshot", root, "--name", "calm")
	s.learn(root, "fourth")
	s.fails(exitUsage, "already", "session", "snapshot", root, "--name", "calm")
	s.fails(exitUsage, "--yes", "session", "rewind", root)
	if out := s.ok("session", "rewind", root, "--yes"); !strings.Contains(out, snap+" (calm)") {
		t.Errorf("rewind said %q", out)
	}
	s.holds(root, "first third")
	s.holds(s.ok("session", "open", "--from", "calm"), "first third")

	var shown shownSession
	if err := json.Unmarshal([]byte(s.ok("session", "show", root, "--json")), &shown); err != nil ||
		len(shown.Snapshots) != 1 || shown.Workspace == nil || len(shown.Members) != 6 || shown.Labels["run"] != "7" || shown.Expires.IsZero() {
		t.Errorf("%v: %+v", err, shown)
	}
	tree := s.ok("session", "tree", kids[2])
	for i, want := range []string{root, "├─ " + kids[0], "├─ " + kids[1], "└─ " + kids[2]} {
		if lines := strings.Split(tree, "\n"); len(lines) != 4 || !strings.HasPrefix(lines[i], want) {
			t.Errorf("the tree lacks %q:\n%s", want, tree)
		}
	}

	s.ok("session", "close", kids[1], kids[1][len(sessionPrefix):])
	s.ok("session", "close", kids[1]) // twice is fine
	s.fails(exitUsage, "was closed", "session", "fork", kids[1])
	s.fails(exitUsage, "was closed", "call", "--session", kids[1], "memory__read_graph")
	if list := s.ok("session", "list", "--closed"); !strings.Contains(list, kids[1]) {
		t.Errorf("the closed one is not listed: %s", list)
	}
	s.ok("session", "close", "--all", "--label", "try=a")
	if left := s.ok("session", "list", "--label", "try=a"); left != "" {
		t.Errorf("still open: %s", left)
	}
	s.holds(root, "first third") // what was forked from it is not part of it
	s.ok("session", "snapshots", "delete", "calm")
	s.fails(exitUsage, "no snapshot", "session", "open", "--from", "calm")
}

func TestSessionMistakes(t *testing.T) {
	s := newShell(t)
	id := s.ok("session", "open")
	s.fails(exitUsage, "tine session list", "session", "show", "ses_ffffffffffff")
	s.fails(exitUsage, "tine session list", "session", "fork", "ses_ffffffffffff")
	s.fails(exitUsage, "tine session list", "call", "--session", "ses_ffffffffffff", "memory__read_graph")
	s.fails(exitUsage, "tine session list", "tools", "--session", "ses_ffffffffffff")
	s.fails(exitUsage, "labels", "session", "open", "--label", "no key=x")
	s.fails(exitUsage, "labels", "session", "fork", id, "--label", "no key=x")
	s.fails(exitUsage, "--count", "session", "fork", id, "--count", "0")
	s.fails(exitUsage, "count", "session", "fork", id, "--count", "1000000")
	s.fails(exitUsage, "nowhere", "session", "open", "--server", "nowhere")
	s.fails(exitUsage, "name", "session", "snapshot", id, "--name", "a/b")
	s.fails(exitUsage, "no snapshot to rewind to", "session", "rewind", id, "--yes")
	s.fails(exitUsage, "unknown tool", "call", "--session", id, "memory__raed_graph", "a=b")
	// Many at once, opened and closed.
	if n := len(strings.Fields(s.ok("session", "open", "--count", "20", "--label", "many=1"))); n != 20 {
		t.Errorf("%d were opened", n)
	}
	var closed struct{ Closed []string }
	if err := json.Unmarshal([]byte(s.ok("session", "close", "--all", "--label", "many=1", "--json")), &closed); err != nil || len(closed.Closed) != 20 {
		t.Errorf("%v: %q", err, closed.Closed)
	}
}

// A session that keeps snapshots by itself goes back before the call that was
// wrong.
func TestSessionAutosnapshot(t *testing.T) {
	s := newShell(t)
	id := s.ok("session", "open", "--autosnapshot", "before=memory__delete_*", "--server", "memory")
	s.learn(id, "kept")
	s.ok("call", "--session", id, "memory__delete_entities", `entityNames:=["kept"]`)
	s.holds(id, "")
	if out := s.ok("session", "snapshots"); out != "" {
		t.Errorf("those made by themselves are listed unasked: %s", out)
	}
	if out := s.ok("session", "snapshots", "--session", id); !strings.Contains(out, "(auto)") {
		t.Errorf("snapshots of the session: %s", out)
	}
	s.ok("session", "rewind", id, "-y")
	s.holds(id, "kept")
}

func TestSessionExportImport(t *testing.T) {
	s := newShell(t)
	t.Chdir(t.TempDir())
	id := s.ok("session", "open")
	s.learn(id, "carried")
	kid := s.ok("session", "fork", id)
	s.learn(kid, "own")
	snap := s.ok("session", "snapshot", kid, "--name", "base")

	var types []string
	for line := range strings.Lines(s.ok("session", "export", kid)) {
		var step api.Step
		if err := json.Unmarshal([]byte(line), &step); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		types = append(types, step.Type)
	}
	if got := strings.Join(types, " "); got != "session call fork session call snapshot" {
		t.Errorf("the trajectory is %q", got)
	}
	stdout, stderr, code := s.try("session", "export", "base")
	if code != 0 || stdout != "base.tine\n" || !strings.Contains(stderr, "secrets") {
		t.Fatalf("exit %d, %q, %q", code, stdout, stderr)
	}
	s.fails(exitFailed, "not overwritten", "session", "export", snap)
	s.ok("session", "export", kid, "-o", "story.jsonl")
	s.fails(exitFailed, "not overwritten", "session", "export", kid, "-o", "story.jsonl")
	for _, name := range []string{"base.tine", "story.jsonl"} {
		info, err := os.Stat(name)
		if err != nil || info.Size() == 0 || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if raw := s.ok("session", "export", "base", "-o", "-"); len(raw) == 0 {
		t.Error("nothing on standard output")
	}

	other := newShell(t)
	s.fails(exitUsage, "already", "session", "import", "base.tine", "--name", "base")
	if got := other.ok("session", "import", "base.tine", "--name", "base"); !strings.HasPrefix(got, snapshotPrefix) {
		t.Errorf("import printed %q", got)
	}
	other.holds(other.ok("session", "open", "--from", "base"), "carried own")
	if err := os.WriteFile("junk", []byte("no snapshot"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := other.try("session", "import", "junk"); code == 0 || stderr == "" {
		t.Errorf("junk was taken in: exit %d, %q", code, stderr)
	}
	// A file that could not be written whole is not there.
	s.fails(exitUsage, "tine session list", "session", "export", "ses_ffffffffffff", "-o", "none.jsonl")
	if _, err := os.Stat(filepath.Join(".", "none.jsonl")); err == nil {
		t.Error("a file is left of an export that failed")
	}
}
