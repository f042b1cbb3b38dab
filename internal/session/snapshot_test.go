package session_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/testkit"
)

const whole = seeing + `
  mem: {builtin: memory}
`

func TestSnapshots(t *testing.T) {
	w := newWorld(t, whole)
	ctx := t.Context()
	ada := session.Owner{Name: "ada"}
	s := w.opened(session.OpenOptions{Owner: ada})
	w.remember(s, "then")
	snap, err := w.Freeze(ctx, s, session.SnapshotOptions{Name: "base", Labels: map[string]string{"a": "1"}})
	if err != nil {
		t.Fatal(failure(err))
	}
	if !strings.HasPrefix(snap.ID, "snp_") || snap.Name != "base" || snap.Owner != "ada" || snap.Session != s.ID ||
		snap.Labels["a"] != "1" || snap.Size <= 0 || snap.Auto || len(snap.Servers) != 3 {
		t.Errorf("the snapshot is %+v", snap)
	}
	w.remember(s, "now")
	// A name is taken once by each owner.
	_, err = w.Freeze(ctx, s, session.SnapshotOptions{Name: "base"})
	testkit.Has(t, "a name that is taken", failure(err), "invalid: ", `"base"`, "delete it")
	bob := w.opened(session.OpenOptions{Owner: session.Owner{Name: "bob"}})
	if _, err := w.Freeze(ctx, bob, session.SnapshotOptions{Name: "base"}); err != nil {
		t.Errorf("another owner's: %s", failure(err))
	}
	w.frozen(s, "")
	w.frozen(s, "")
	w.CloseSession(ctx, s)
	for _, again := range []func(*world, string){func(*world, string) {}, (*world).crash} {
		again(w, whole)
		if n := len(w.Snapshots()); n != 4 {
			t.Fatalf("%d snapshots", n)
		}
		// What was made of it after the session is closed is its own.
		one, two := w.opened(session.OpenOptions{From: snap.ID, Owner: ada}), w.opened(session.OpenOptions{From: snap.ID})
		w.remembers("one from the snapshot", one, "then")
		w.remember(one, "else")
		w.remembers("another one", two, "then")
		if d := w.Describe(one, false); d.From != snap.ID || d.Parent != "" || d.Depth != 0 {
			t.Errorf("it is %+v", d)
		}
		w.CloseSession(ctx, one)
		w.CloseSession(ctx, two)
	}
	if err := w.DeleteSnapshot(ctx, snap.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.DeleteSnapshot(ctx, snap.ID); err != nil {
		t.Errorf("deleting twice: %v", err)
	}
	_, _, err = w.OpenSession(ctx, session.OpenOptions{From: snap.ID})
	testkit.Has(t, "one from what was deleted", failure(err), "invalid: ", snap.ID)
	for _, s := range w.Snapshots() {
		if err := w.DeleteSnapshot(ctx, s.ID); err != nil {
			t.Error(err)
		}
	}
	for _, s := range w.Sessions() {
		w.CloseSession(ctx, s)
	}
	wantLeft(t, w)
	if n := w.layersLeft(); n != 0 {
		t.Errorf("%d layers are left", n)
	}
	// The name is free again.
	w.frozen(w.opened(session.OpenOptions{Owner: ada}), "base")
}

func TestSnapshotsOfOneNameAtOnce(t *testing.T) {
	w := newWorld(t, kept)
	s := w.opened(session.OpenOptions{})
	set(t, s, "own", "a", "1")
	before := len(w.left())
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for range 5 {
		wg.Go(func() {
			_, err := w.Freeze(t.Context(), s, session.SnapshotOptions{Name: "x"})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made++
			} else if !strings.Contains(err.Error(), "already") {
				t.Error(failure(err))
			}
		})
	}
	wg.Wait()
	if left := len(w.left()); made != 1 || len(w.Snapshots()) != 1 || left != before+2 {
		t.Errorf("%d were made, %d are known, %d lie there and %d did: %q", made, len(w.Snapshots()), left, before, w.left())
	}
}

func TestSnapshotThatFails(t *testing.T) {
	for _, point := range []string{"freeze own", "froze own", "put snapshot"} {
		t.Run(point, func(t *testing.T) {
			w := newWorld(t, whole)
			s := w.session("ada")
			w.remember(s, "x")
			before, layers := strings.Join(w.left(), " "), w.layersLeft()
			w.m.fail(point, 0)
			if _, err := w.Freeze(t.Context(), s, session.SnapshotOptions{Name: "n"}); err == nil {
				t.Fatal("it succeeded")
			}
			if got := strings.Join(w.left(), " "); got != before || len(w.Snapshots()) != 0 {
				t.Errorf("left is %s, and it was %s", got, before)
			}
			w.remembers("the session", s, "x")
			w.frozen(s, "n")
			if n := w.layersLeft(); n > layers+1 {
				t.Errorf("%d layers, and there were %d", n, layers)
			}
		})
	}
}

// A snapshot that is deleted while a session is opened from it stays until that
// one is whole.
func TestDeleteWhileASessionIsOpened(t *testing.T) {
	w := newWorld(t, kept)
	s := w.opened(session.OpenOptions{})
	set(t, s, "own", "a", "1")
	snap := w.frozen(s, "base")
	w.CloseSession(t.Context(), s)
	there, letOn := w.m.block("seed own", 0)
	type result struct {
		s   *session.Session
		err error
	}
	opened := make(chan result, 1)
	go func() {
		s, _, err := w.OpenSession(t.Context(), session.OpenOptions{From: snap.ID})
		opened <- result{s, err}
	}()
	testkit.Within(t, "the opening", there)
	if err := w.DeleteSnapshot(t.Context(), snap.ID); err != nil {
		t.Fatal(err)
	}
	if len(w.Snapshots()) != 0 {
		t.Error("it is still listed")
	}
	w.frozen(w.opened(session.OpenOptions{}), "base") // its name is free
	letOn()
	got := testkit.Within(t, "the session", opened)
	if got.err != nil {
		t.Fatal(failure(got.err))
	}
	wantDump(t, "the session", got.s, "own", `{"a":"1"}`)
	testkit.Eventually(t, "the snapshot is removed", func() bool { return !strings.Contains(strings.Join(w.left(), " "), snap.ID) })
}

// A template may be a snapshot, by its name.
func TestTemplateIsASnapshot(t *testing.T) {
	const from = `
workspace: {template: "snapshot:base"}
servers:
  mem: {builtin: memory, template: "snapshot:base"}
  tree: {builtin: files}
`
	w := newWorld(t, inside)
	s := w.opened(session.OpenOptions{})
	set(t, s, "mem", "a", "1")
	do(t.Context(), t, s, "tree", "write", "path", "f", "text", "x")
	w.apply(from)
	n := w.opened(session.OpenOptions{})
	testkit.Has(t, "without the snapshot", do(t.Context(), t, n, "mem", "dump"), "invalid: ", `"base"`, "tine session snapshot")
	snap := w.frozen(s, "base")
	set(t, s, "mem", "a", "2")
	n = w.opened(session.OpenOptions{})
	wantDump(t, "one with the template", n, "mem", `{"a":"1"}`)
	if got := do(t.Context(), t, n, "tree", "read", "path", "f"); got != `"x"` {
		t.Errorf("its file has %s", got)
	}
	set(t, n, "mem", "b", "2")
	wantDump(t, "the next one", w.session("bob"), "mem", `{"a":"1"}`)
	wantDamage(t, "one that began with it", n.Damaged(), "")

	// It is deleted while a session begins with it.
	there, letOn := w.m.block("seed mem", 0)
	late := w.opened(session.OpenOptions{})
	got := make(chan string, 1)
	go func() { got <- dump(t, late, "mem") }()
	testkit.Within(t, "the seeding", there)
	if err := w.DeleteSnapshot(t.Context(), snap.ID); err != nil {
		t.Fatal(err)
	}
	letOn()
	if got := testkit.Within(t, "the call", got); got != `{"a":"1"}` {
		t.Errorf("one that began with it remembers %s", got)
	}
	testkit.Eventually(t, "the snapshot is removed", func() bool { return !strings.Contains(strings.Join(w.left(), " "), snap.ID) })

	// One of a principal's is meant by its id and not by its name, so that no other
	// principal can put another in its place.
	s = w.opened(session.OpenOptions{Owner: session.Owner{Name: "eve"}, Servers: []string{"tree"}, From: w.frozen(s, "other").ID})
	eves := w.frozen(s, "base")
	testkit.Has(t, "a template of eve's", do(t.Context(), t, w.opened(session.OpenOptions{}), "mem", "dump"), "invalid: ", `"base"`)
	w.apply(strings.ReplaceAll(from, "snapshot:base", "snapshot:"+eves.ID))
	n = w.opened(session.OpenOptions{})
	testkit.Has(t, "a template without the server", do(t.Context(), t, n, "mem", "dump"), "invalid: ", `"mem"`, "nothing of it")
	if got := do(t.Context(), t, n, "tree", "read", "path", "f"); got != `"x"` {
		t.Errorf("its file has %s", got)
	}
}

// A template may be a file too.
func TestTemplateIsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "graph.json")
	if err := os.WriteFile(file, []byte(`{"from":"file"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, "servers:\n  mem: {builtin: memory, template: "+file+"}\n")
	s := w.opened(session.OpenOptions{})
	wantDump(t, "a session", s, "mem", `{"from":"file"}`)
	set(t, s, "mem", "a", "1")
	wantDump(t, "its fork", w.fork(s, 1)[0], "mem", `{"a":"1","from":"file"}`)
}

// The bytes of one's snapshots are bounded.
func TestSnapshotQuota(t *testing.T) {
	w := newWorld(t, "sessions: {snapshots: 1MiB}\n"+kept)
	s := w.opened(session.OpenOptions{Owner: session.Owner{Name: "ada"}})
	set(t, s, "mem", "large", strings.Repeat("x", 1<<20))
	var snap api.Snapshot
	for range 2 {
		snap = w.frozen(s, "")
		_, err := w.Freeze(t.Context(), s, session.SnapshotOptions{})
		testkit.Has(t, "one too many", failure(err), "refused: ", "1024 KiB", "sessions.snapshots")
		_, err = w.Import(t.Context(), session.ImportOptions{Owner: "ada", Name: ""}, strings.NewReader(""))
		testkit.Has(t, "an import too many", failure(err), "refused: ", "sessions.snapshots")
		w.frozen(w.session("bob"), "")
		if err := w.DeleteSnapshot(t.Context(), snap.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// A session from a snapshot has the servers of the session that it was made of, unless others
// are named.
func TestASnapshotKeepsItsServers(t *testing.T) {
	w := newWorld(t, kept)
	snap := w.frozen(w.opened(session.OpenOptions{Servers: []string{"mem", "all"}}), "few")
	members := func(o session.OpenOptions) string {
		var ids []string
		for _, m := range w.Describe(w.opened(o), true).Members {
			ids = append(ids, m.Server)
		}
		return strings.Join(ids, " ")
	}
	check := func(when, id string) {
		if got := members(session.OpenOptions{From: id}); got != "mem all" {
			t.Errorf("%s a session from it has %s", when, got)
		}
		if got := members(session.OpenOptions{From: id, Servers: []string{"own"}}); got != "own" {
			t.Errorf("%s one with a server of its own has %s", when, got)
		}
	}
	check("at first", snap.ID)
	w.reopen(kept)
	check("after a restart", snap.ID)
	in, err := w.Import(t.Context(), session.ImportOptions{Name: "again"}, bytes.NewReader(w.exported(snap.ID)))
	if err != nil {
		t.Fatal(failure(err))
	}
	check("imported", in.ID)
}
