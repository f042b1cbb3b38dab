package session_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/testkit"
)

// What is done for the instances of a session is done at once, and not for one
// after the other.
func TestInstancesAreServedAtOnce(t *testing.T) {
	w := newWorld(t, several)
	var s *session.Session
	var snap api.Snapshot
	for _, step := range []struct {
		name, first, second string
		do                  func() error
	}{
		{"opening", "seed own", "seed own", func() (err error) {
			s, _, err = w.OpenSession(context.Background(), session.OpenOptions{
				Servers: []string{"own"}, Eager: true, Members: map[string]catalog.Member{"own": {Instances: 2}},
			})
			return err
		}},
		{"freezing", "freeze own", "freeze own", func() (err error) {
			snap, err = w.Freeze(context.Background(), s, session.SnapshotOptions{})
			return err
		}},
		{"rewinding", "seed own", "seed own", func() error { return w.Rewind(context.Background(), s, snap.ID, 0) }},
		{"closing", "erase own", "erase own", func() error { return w.CloseSession(context.Background(), s) }},
		{"discarding", "discard own", "discard own~1", func() error { return w.DeleteSnapshot(context.Background(), snap.ID) }},
	} {
		var there [2]<-chan struct{}
		var letOn [2]func()
		for i, point := range []string{step.first, step.second} {
			there[i], letOn[i] = w.m.block(point, 0)
		}
		done := make(chan error, 1)
		go func() { done <- step.do() }()
		for i := range there {
			testkit.Within(t, step.name, there[i])
		}
		for _, on := range letOn {
			on()
		}
		if err := testkit.Within(t, step.name, done); err != nil {
			t.Fatal(step.name, failure(err))
		}
	}
}

// However many instances a session has, only so many start at once, and an error
// says only so much.
func TestManyInstances(t *testing.T) {
	const many = 150
	w := newWorld(t, several+"  bad: {command: missing}\n")
	var now, most, came atomic.Int64
	full := make(chan struct{})
	for range many {
		w.m.on("start own", 0, func(context.Context) error {
			most.Store(max(most.Load(), now.Add(1)))
			if came.Add(1) == session.Together {
				close(full)
			}
			<-full
			return nil
		})
		w.m.on("started own", 0, func(context.Context) error {
			now.Add(-1)
			return nil
		})
	}
	s := w.opened(session.OpenOptions{Servers: []string{"own"}, Eager: true, Members: map[string]catalog.Member{"own": {Instances: many}}})
	if err := w.CloseSession(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if n := most.Load(); n > session.Together {
		t.Errorf("%d were started at once", n)
	}
	_, _, err := w.OpenSession(t.Context(), session.OpenOptions{
		Servers: []string{"bad"}, Eager: true, Members: map[string]catalog.Member{"bad": {Instances: many}},
	})
	var e *api.Error
	if !errors.As(err, &e) || len(e.Causes) != many {
		t.Fatalf("got %v", err)
	}
	testkit.Has(t, "the error", e.Message, fmt.Sprintf("%d servers failed", many), `"bad~1"`, "more")
	if n := strings.Count(e.Message, ";"); n > 30 {
		t.Errorf("it names %d of them", n)
	}
}

// A workspace that comes with a snapshot can't begin with a template too.
func TestTemplateBesideASnapshotsWorkspace(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "files", "f"), "given")
	w := newWorld(t, several+"  other: {builtin: files}\ntemplate_roots: ["+dir+"]\n")
	s := w.opened(session.OpenOptions{})
	do(t.Context(), t, s, "other", "write", "path", "f", "text", "frozen")
	snap := w.frozen(s, "base")
	_, _, err := w.OpenSession(t.Context(), session.OpenOptions{From: snap.ID, Members: map[string]catalog.Member{"tree": {Template: raw("files")}}})
	testkit.Has(t, "a template, too", failure(err), "invalid: ", `server "tree"`, snap.ID)
	bare := w.frozen(w.opened(session.OpenOptions{}), "bare")
	n := w.opened(session.OpenOptions{From: bare.ID, Members: map[string]catalog.Member{"tree": {Template: raw("files")}}})
	if got := do(t.Context(), t, n, "tree", "read", "path", "f"); got != `"given"` {
		t.Errorf("its file has %s", got)
	}
}

// A snapshot says how many instances there were of servers that are not several
// any more.
func TestSnapshotOfSeveralThatAreSharedNow(t *testing.T) {
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
	elsewhere.apply(strings.Replace(several, "{builtin: memory}", "{builtin: memory, scope: shared}", 1))
	n := elsewhere.opened(session.OpenOptions{From: snap.ID})
	if e := n.Catalog().Entry("mem~1"); e != nil {
		t.Error("there is a second instance of what all sessions share")
	}
	for _, m := range elsewhere.Describe(n, true).Members {
		if m.Server == "own~2" {
			return
		}
	}
	t.Error("the third instance of own is not there")
}

// By its id, the owner's snapshot may be a template, and another's only where
// control has checked that it may.
func TestTemplateOfAnother(t *testing.T) {
	w := newWorld(t, several)
	s := w.opened(session.OpenOptions{Owner: session.Owner{Name: "ada"}})
	set(t, s, "mem", "k", "hers")
	snap := w.frozen(s, "base")
	for _, by := range []string{snap.ID, "snapshot:" + snap.ID, "base"} {
		_, _, err := w.OpenSession(t.Context(), session.OpenOptions{Owner: session.Owner{Name: "eve"}, Members: map[string]catalog.Member{"mem": {Template: raw(by)}}})
		if err == nil || !strings.HasPrefix(failure(err), "invalid: ") {
			t.Errorf("eve begins with %s of ada's: %v", by, err)
		}
	}
	for name, m := range map[string]catalog.Member{
		"ada":  {Template: raw(snap.ID)},
		"root": {Template: raw(snap.ID), Snapshot: snap.ID},
	} {
		n := w.opened(session.OpenOptions{Owner: session.Owner{Name: name}, Members: map[string]catalog.Member{"mem": m}})
		wantDump(t, name, n, "mem", `{"k":"hers"}`)
		wantDump(t, name+"'s fork", w.fork(n, 1)[0], "mem", `{"k":"hers"}`)
	}
}
