package session_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/session/catalog"
)

const several = `
servers:
  own: {command: own, state: [data], args: ["${state.data}"]}
  mem: {builtin: memory}
  tree: {builtin: files}
`

// three is a session with three instances of each server.
func three(t *testing.T, w *world) *session.Session {
	t.Helper()
	m := catalog.Member{Instances: 3}
	return w.opened(session.OpenOptions{Members: map[string]catalog.Member{"own": m, "mem": m, "tree": m}})
}

// fill has every instance remember its own name, and at.
func fill(t *testing.T, s *session.Session, at string) {
	t.Helper()
	for n := range 3 {
		for _, server := range []string{"own", "mem"} {
			set(t, s, catalog.MemberName(server, n), "at", fmt.Sprint(at, n))
		}
		if got := do(t.Context(), t, s, catalog.MemberName("tree", n), "write", "path", "f", "text", fmt.Sprint(at, n)); got != `"ok"` {
			t.Fatal(got)
		}
	}
}

func holdsAll(t *testing.T, what string, s *session.Session, at string) {
	t.Helper()
	for n := range 3 {
		for _, server := range []string{"own", "mem"} {
			wantDump(t, what, s, catalog.MemberName(server, n), fmt.Sprintf(`{"at":"%s%d"}`, at, n))
		}
		if got, want := do(t.Context(), t, s, catalog.MemberName("tree", n), "read", "path", "f"), fmt.Sprintf("%q", fmt.Sprint(at, n)); got != want {
			t.Errorf("%s: file %d has %s, want %s", what, n, got, want)
		}
	}
}

func TestSeveralInstances(t *testing.T) {
	w := newWorld(t, several)
	s := three(t, w)
	fill(t, s, "a")
	holdsAll(t, "the session", s, "a")
	child := w.fork(s, 1)[0]
	fill(t, s, "b")
	holdsAll(t, "a fork", child, "a")
	snap := w.frozen(s, "base")
	fill(t, s, "c")
	other := w.opened(session.OpenOptions{From: snap.ID})
	holdsAll(t, "one from the snapshot", other, "b")
	if err := w.Rewind(t.Context(), s, snap.ID, 0); err != nil {
		t.Fatal(failure(err))
	}
	holdsAll(t, "after a rewind", s, "b")
	w.crash(several)
	for id, at := range map[string]string{s.ID: "b", child.ID: "a", other.ID: "b"} {
		holdsAll(t, "after a crash", w.Get(id), at)
	}
	for _, id := range []string{s.ID, child.ID, other.ID} {
		if err := w.CloseSession(t.Context(), w.Get(id)); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(w.dir, "sessions")); len(left) > 0 {
		t.Errorf("%d folders of sessions are left", len(left))
	}
	w.runs("")
}

func TestSeveralInstancesAreAdopted(t *testing.T) {
	w := makeWorld(t, several, func(w *world) { w.m.adopts = true })
	s := three(t, w)
	fill(t, s, "a")
	w.crash(several)
	holdsAll(t, "after a crash", w.Get(s.ID), "a")
	if n := w.m.starts["own"]; n != 3 {
		t.Errorf("own was started %d times, want 3", n)
	}
}

func TestSeveralInstancesTravel(t *testing.T) {
	w := newWorld(t, several)
	s := three(t, w)
	fill(t, s, "a")
	var file bytes.Buffer
	if err := w.Export(t.Context(), w.frozen(s, "base").ID, nil, &file); err != nil {
		t.Fatal(err)
	}
	elsewhere := newWorld(t, several)
	snap, err := elsewhere.Import(t.Context(), session.ImportOptions{Owner: "", Name: "there"}, &file)
	if err != nil {
		t.Fatal(failure(err))
	}
	holdsAll(t, "elsewhere", elsewhere.opened(session.OpenOptions{From: snap.ID}), "a")
}

func TestMembersThatCantBe(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "in", "t.json"), `{"k":"v"}`)
	write(t, filepath.Join(dir, "out.json"), `{}`)
	for from, to := range map[string]string{"link": filepath.Join(dir, "out.json"), "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(dir, "in", from)); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t, several+"  all: {builtin: memory, scope: shared}\n  none: {command: none}\ntemplate_roots: ["+filepath.Join(dir, "in")+"]\n")
	snap := w.frozen(w.opened(session.OpenOptions{Servers: []string{"own"}}), "own-only")
	for name, tt := range map[string]struct {
		server string
		m      catalog.Member
		want   string
	}{
		"unknown":       {"nope", catalog.Member{Instances: 2}, `there is no server "nope"`},
		"a member":      {"own~1", catalog.Member{}, `there is no server "own~1"`},
		"too many":      {"own", catalog.Member{Instances: 1001}, "1 to 1000"},
		"negative":      {"own", catalog.Member{Instances: -1}, "1 to 1000"},
		"shared":        {"all", catalog.Member{Instances: 2}, "share one instance"},
		"shared, too":   {"all", catalog.Member{Template: raw("t.json")}, "share one instance"},
		"no memory":     {"none", catalog.Member{Template: raw("t.json")}, "remembers nothing"},
		"no string":     {"mem", catalog.Member{Template: json.RawMessage(`{}`)}, "must be a string"},
		"not there":     {"mem", catalog.Member{Template: raw("nothing.json")}, "neither a snapshot nor anything under template_roots"},
		"outside":       {"mem", catalog.Member{Template: raw(filepath.Join(dir, "out.json"))}, "not under template_roots"},
		"outside, ..":   {"mem", catalog.Member{Template: raw("../out.json")}, "not under template_roots"},
		"outside, link": {"mem", catalog.Member{Template: raw("link")}, "not under template_roots"},
		"nowhere":       {"mem", catalog.Member{Template: raw(filepath.Join(dir, "nothing.json"))}, "not under template_roots"},
		"nowhere, ..":   {"mem", catalog.Member{Template: raw("../nothing.json")}, "not under template_roots"},
		"a loop":        {"mem", catalog.Member{Template: raw("loop")}, "too many links"},
		"in a file":     {"mem", catalog.Member{Template: raw("t.json/x")}, "template \"t.json/x\": not a directory"},
		"no snapshot":   {"mem", catalog.Member{Template: raw("snapshot:nope")}, "there is no snapshot nope"},
		"not in it":     {"mem", catalog.Member{Template: raw(snap.ID)}, "has nothing of it"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := w.OpenSession(t.Context(), session.OpenOptions{Members: map[string]catalog.Member{tt.server: tt.m}})
			if err == nil || !strings.Contains(failure(err), "invalid: ") || !strings.Contains(failure(err), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func raw(s string) json.RawMessage {
	b, _ := json.Marshal(s)
	return b
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTemplatesOfASession(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "t.json"), `{"k":"path"}`)
	write(t, filepath.Join(dir, "files", "f"), "given")
	yaml := several + "template_roots: [" + dir + "]\n"
	w := newWorld(t, yaml)
	first := w.opened(session.OpenOptions{})
	set(t, first, "mem", "k", "snapshot")
	snap := w.frozen(first, "base")

	s := w.opened(session.OpenOptions{Members: map[string]catalog.Member{
		"mem": {Instances: 2, Template: raw("t.json")}, "tree": {Instances: 2, Template: raw("files")},
	}})
	from := w.opened(session.OpenOptions{Members: map[string]catalog.Member{"mem": {Template: raw("base")}}})
	// What a session begins with is its own from the first moment on.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := w.DeleteSnapshot(t.Context(), snap.ID); err != nil {
		t.Fatal(err)
	}
	w.crash(yaml)
	s, from = w.Get(s.ID), w.Get(from.ID)
	for _, member := range []string{"mem", "mem~1"} {
		wantDump(t, "by a path", s, member, `{"k":"path"}`)
	}
	for _, member := range []string{"tree", "tree~1"} {
		if got := do(t.Context(), t, s, member, "read", "path", "f"); got != `"given"` {
			t.Errorf("%s has %s", member, got)
		}
	}
	wantDump(t, "by a snapshot", from, "mem", `{"k":"snapshot"}`)
	set(t, s, "mem", "k", "changed")
	wantDump(t, "the other one", s, "mem~1", `{"k":"path"}`)
}

func TestErrorsOfSeveralServers(t *testing.T) {
	w := newWorld(t, "servers:\n  a: {command: missing}\n  b: {command: missing}\n  c: {command: fine}\n")
	_, _, err := w.OpenSession(t.Context(), session.OpenOptions{Eager: true})
	var e *api.Error
	if err == nil || !errors.As(err, &e) || len(e.Causes) != 2 || e.Causes[0].Server != "a" || e.Causes[1].Server != "b" {
		t.Fatalf("got %+v", err)
	}
	for _, part := range []string{`server "a"`, `server "b"`, "2 servers"} {
		if !strings.Contains(e.Message, part) {
			t.Errorf("%q does not name %s", e.Message, part)
		}
	}
	w.runs("")
}

func TestUse(t *testing.T) {
	w := newWorld(t, several)
	s := w.session("ada")
	if s.Uses() != "" {
		t.Error("it uses another one from the beginning")
	}
	if err := s.Use(context.Background(), "ses_x"); err != nil {
		t.Fatal(err)
	}
	w.crash(several)
	if got := w.Get(s.ID).Uses(); got != "ses_x" {
		t.Errorf("after a crash it uses %q", got)
	}
}
