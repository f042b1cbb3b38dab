package session_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// misfit has no memory fit any more, or with nil each again.
func (b *boxes) misfit(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unfit = err
}

var errChanged = fmt.Errorf("srv.py is another: %w", driver.ErrUnfit)

// suspended is a world with a session whose server is suspended with a=1.
func suspended(t *testing.T, yaml string) (*world, *session.Session) {
	t.Helper()
	w := boxWorld(t, yaml)
	s := w.opened(session.OpenOptions{})
	set(t, s, "box", "a", "1")
	w.close(false)
	w.open(yaml)
	return w, w.Get(s.ID)
}

// keptMemory reports whether the memory of the session's server is in its state.
func keptMemory(w *world, s *session.Session) bool {
	all, err := filepath.Glob(filepath.Join(w.dir, "sessions", s.ID, "box*", memoryFile))
	return err == nil && len(all) == 1
}

// A memory that does not fit is told once and kept; the next call goes on with it
// where it fits again, and begins anew otherwise.
func TestAMemoryThatDoesNotFit(t *testing.T) {
	for name, yaml := range map[string]string{
		"nothing": boxed1,
		"files":   "servers: {box: {command: box, args: ['${state.d}'], sandbox: true, state: [d]}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			w, s := suspended(t, yaml)
			w.boxes.misfit(errChanged)
			up, _, err := s.Upstream("box")
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				p, _ := wire.ScanParams(wire.MethodListTools, []byte(`{}`))
				if _, err := up.Call(t.Context(), &upstream.Request{Method: wire.MethodListTools, Params: p, Client: &upstream.Client{}}); upstream.Kind(err) != "lost" {
					t.Errorf("a list: %v", err)
				}
			}
			testkit.Has(t, "the first call", callIn(t, s, "box", "x"), "lost: ", `server "box"`, "srv.py is another", "put back what has changed", "the next call begins anew")
			if all := s.Damaged(); len(all) != 1 || all[0].Kept != name || all[0].Times > 1 || !keptMemory(w, s) {
				t.Errorf("damaged by %+v, memory kept: %v", all, keptMemory(w, s))
			}
			testkit.Has(t, "the next call", callIn(t, s, "box", "x"), `{"pid":`)
			wantDump(t, "what began anew", s, "box", `{}`)
			if all := s.Damaged(); len(all) != 1 || keptMemory(w, s) {
				t.Errorf("damaged by %+v, memory kept: %v", all, keptMemory(w, s))
			}
		})
	}
	t.Run("put back", func(t *testing.T) {
		w, s := suspended(t, boxed1)
		w.boxes.misfit(errChanged)
		testkit.Has(t, "the first call", callIn(t, s, "box", "x"), "lost: ")
		w.close(false) // what was told is not forgotten
		w.open(boxed1)
		s = w.Get(s.ID)
		w.boxes.misfit(nil)
		wantDump(t, "what goes on", s, "box", `{"a":"1"}`)
		wantDamage(t, "the session", s.Damaged(), "")
		// Another time is told as the first was.
		w.close(false)
		w.open(boxed1)
		s = w.Get(s.ID)
		w.boxes.misfit(errChanged)
		testkit.Has(t, "the first call", callIn(t, s, "box", "x"), "lost: ")
		w.crash(boxed1)
		s = w.Get(s.ID)
		testkit.Has(t, "the next call", callIn(t, s, "box", "x"), `{"pid":`)
		if all := s.Damaged(); len(all) != 1 || all[0].Times > 1 {
			t.Errorf("damaged by %+v", all)
		}
	})
	t.Run("refused", func(t *testing.T) {
		for _, yaml := range []string{boxed1, "servers: {box: {command: box, args: ['${state.d}'], sandbox: true, state: [d]}}\n"} {
			yaml += "sessions: {on_loss: refuse}\n"
			w, s := suspended(t, yaml)
			w.boxes.misfit(errChanged)
			for range 3 {
				testkit.Has(t, "a call", callIn(t, s, "box", "x"), "lost: ", "srv.py is another", "sessions.on_loss is refuse")
				if !keptMemory(w, s) {
					t.Fatal("the memory is gone")
				}
			}
			w.boxes.misfit(nil)
			wantDump(t, "put back", s, "box", `{"a":"1"}`)
			wantDamage(t, "the session", s.Damaged(), "")
		}
	})
	t.Run("rewound", func(t *testing.T) {
		yaml := boxed1 + "sessions: {on_loss: refuse}\n"
		w := boxWorld(t, yaml)
		s := w.opened(session.OpenOptions{})
		set(t, s, "box", "a", "0")
		before := w.frozen(s, "")
		set(t, s, "box", "a", "1")
		w.close(false)
		w.open(yaml)
		s = w.Get(s.ID)
		w.boxes.misfit(errChanged)
		testkit.Has(t, "a call", callIn(t, s, "box", "x"), "lost: ")
		w.boxes.misfit(nil)
		if err := w.Rewind(context.Background(), s, before.ID, 0); err != nil {
			t.Fatal(err)
		}
		wantDump(t, "after the rewind", s, "box", `{"a":"0"}`)
		wantDamage(t, "the session", s.Damaged(), "")
	})
	t.Run("a server that remembers nothing", func(t *testing.T) {
		w, s := suspended(t, "servers: {box: {command: box, sandbox: true, state: none}}\n")
		w.boxes.misfit(errChanged)
		testkit.Has(t, "a call", callIn(t, s, "box", "x"), `{"pid":`)
		wantDamage(t, "the session", s.Damaged(), "")
	})
}

// A server in a sandbox that sees the workspace and declares no state remembers in
// its memory: its death is told, and counts where losses are refused.
func TestADeadServerInTheWorkspace(t *testing.T) {
	const yaml = "workspace: true\nservers: {box: {command: box, args: ['${workspace}'], sandbox: true}}\n"
	for _, refuse := range []bool{false, true} {
		text := yaml
		if refuse {
			text += "sessions: {on_loss: refuse}\n"
		}
		w := boxWorld(t, text)
		s := w.opened(session.OpenOptions{})
		set(t, s, "box", "a", "1")
		w.m.one("box").kill()
		first := []string{"lost: "}
		if !refuse { // else the death may be known before the call, which is refused like the next
			first = append(first, "what it had in memory is lost")
		}
		testkit.Has(t, "the first call", callIn(t, s, "box", "x"), first...)
		if all := s.Damaged(); len(all) != 1 || all[0].Kept != "files" || !all[0].Memory {
			t.Errorf("damaged by %+v", all)
		}
		want := `{"pid":`
		if refuse {
			want = "sessions.on_loss is refuse"
		}
		testkit.Has(t, "the next call", callIn(t, s, "box", "x"), want)
	}
}
