package session_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/testkit"
)

const warm3 = "servers: {box: {command: box, sandbox: true, warm: 3}}\n"

// isWarm waits until so many are to be ready.
func (w *world) isWarm(n int) {
	w.t.Helper()
	testkit.Eventually(w.t, "it is warm", func() bool { return w.boxes.isReady() == n })
}

func TestWarm(t *testing.T) {
	ctx := context.Background()
	w := boxWorld(t, warm3)
	w.isWarm(3)
	w.runs("")
	if n := w.m.greetings("box"); n != 1 {
		t.Errorf("%d handshakes to make it", n)
	}
	// All that come now are copies of that, each for itself.
	s, other := w.opened(session.OpenOptions{}), w.session("me")
	set(t, s, "box", "a", "1")
	wantDump(t, "one", s, "box", `{"a":"1"}`)
	wantDump(t, "another", other, "box", `{}`)
	twice := w.opened(session.OpenOptions{Members: map[string]catalog.Member{"box": {Instances: 2}}})
	wantDump(t, "a second instance", twice, "box~1", `{}`)
	if n := w.m.greetings("box"); n != 1 {
		t.Errorf("%d handshakes with all of them", n)
	}
	if p := w.Pools()["box"]; p.Ready != 3 || p.Slots != 2 || p.Live != 3 || p.Parked != 1 {
		t.Errorf("pool %+v", p)
	}
	// It follows the config: more of the same, another program, none.
	w.apply(strings.Replace(warm3, "3", "5", 1))
	w.isWarm(5)
	if n := w.m.greetings("box"); n != 1 {
		t.Errorf("%d handshakes after a change of the number", n)
	}
	w.apply(strings.Replace(warm3, "command: box", "command: box, args: [x]", 1))
	testkit.Eventually(t, "another is made", func() bool { return w.m.greetings("box") == 2 && w.boxes.isReady() == 3 })
	w.apply(boxed1)
	w.isWarm(0)
	for _, s := range w.Sessions() {
		if err := w.CloseSession(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "nothing is left", func() bool { return len(w.left()) == 0 })
}

func TestWarmIsNotForWhatBeginsOtherwise(t *testing.T) {
	roots := t.TempDir()
	if err := os.WriteFile(filepath.Join(roots, "t.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := boxWorld(t, warm3+"template_roots: ["+roots+"]\n")
	w.isWarm(3)
	before := w.m.greetings("box")
	s := w.opened(session.OpenOptions{Members: map[string]catalog.Member{"box": {Template: []byte(`"t.json"`)}}})
	wantDump(t, "one with a template of its own", s, "box", `{}`)
	client, err := w.ForClient(t.Context(), "", []byte(`{"roots":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	wantDump(t, "one of a client", client, "box", `{}`)
	if n := w.m.greetings("box") - before; n != 2 {
		t.Errorf("%d handshakes, want each", n)
	}
}

func TestWarmTriesAgain(t *testing.T) {
	for name, point := range map[string]string{"seeding": "seed box", "starting": "start box", "freezing": "freeze box"} {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(t, warm3, func(w *world) {
				w.boxes = &boxes{}
				w.m.faults = append(w.m.faults, &fault{point: point, do: func(context.Context) error { return errFailed }})
			})
			// Meanwhile sessions open the ordinary way.
			s := w.opened(session.OpenOptions{})
			wantDump(t, "a session", s, "box", `{}`)
			w.isWarm(3)
			w.runs("box")
		})
	}
	t.Run("where what was made does not answer", func(t *testing.T) {
		w := makeWorld(t, warm3, func(w *world) {
			w.boxes = &boxes{}
			w.m.faults = append(w.m.faults, &fault{point: "start box", after: 1, do: func(context.Context) error { return errFailed }})
		})
		w.isWarm(3)
		w.runs("")
	})
	t.Run("where a session could not begin with it", func(t *testing.T) {
		w := boxWorld(t, warm3)
		w.isWarm(3)
		before := w.m.greetings("box")
		w.m.mu.Lock()
		w.m.faults = append(w.m.faults, &fault{point: "seeded box", do: func(context.Context) error { return errors.New("damaged") }})
		w.m.mu.Unlock()
		wantDump(t, "a session", w.opened(session.OpenOptions{}), "box", `{}`)
		testkit.Eventually(t, "it is made again", func() bool { return w.m.greetings("box") == before+2 && w.boxes.isReady() == 3 })
	})
}

func TestWarmIsGoneAfterTheGateway(t *testing.T) {
	for name, again := range map[string]func(*world, string){"restart": (*world).reopen, "crash": (*world).crash} {
		t.Run(name, func(t *testing.T) {
			w := boxWorld(t, warm3)
			w.isWarm(3)
			w.boxes = &boxes{} // the driver of the next one
			again(w, boxed1)
			if left := w.left(); len(left) != 0 {
				t.Errorf("%q is left", left)
			}
			w.runs("")
		})
	}
	t.Run("crash while it is made", func(t *testing.T) {
		w := makeWorld(t, boxed1, func(w *world) { w.boxes = &boxes{} })
		stuck, free := make(chan struct{}), make(chan struct{})
		w.m.mu.Lock()
		w.m.faults = append(w.m.faults, &fault{point: "freeze box", do: func(context.Context) error { close(stuck); <-free; return errFailed }})
		w.m.mu.Unlock()
		w.apply(warm3)
		testkit.Within(t, "it freezes", stuck)
		w.boxes = &boxes{}
		go func() { close(free) }()
		w.crash(boxed1)
		if left := w.left(); len(left) != 0 {
			t.Errorf("%q is left", left)
		}
		w.runs("")
	})
}

// What stands ready takes at most half of what all sessions have, and gives back
// what it took.
func TestWarmKeepsToTheBudget(t *testing.T) {
	const yaml = `
sessions: {memory: 512MiB}
servers:
  box: {command: box, sandbox: true, warm: 10, budget: {memory: 100MiB}}
`
	w := boxWorld(t, yaml)
	w.isWarm(2)
	var all []*session.Session
	for n := range 5 {
		if n > 2 { // what stands ready gives way
			w.isWarm(5 - n)
		}
		all = append(all, w.opened(session.OpenOptions{Eager: true, Wait: -1}))
	}
	w.isWarm(0)
	_, _, err := w.OpenSession(t.Context(), session.OpenOptions{Eager: true, Wait: -1})
	testkit.Has(t, "a sixth", failure(err), "refused: ", "500 MiB of 512 MiB")
	for _, s := range all[2:] {
		if err := w.CloseSession(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	all = all[:2]
	w.Fill()
	w.isWarm(2) // and no more than half
	w.apply(strings.Replace(yaml, "warm: 10, ", "", 1))
	w.isWarm(0)
	w.opened(session.OpenOptions{})
	w.opened(session.OpenOptions{})
	for _, s := range all {
		wantDump(t, "one that was opened before", s, "box", `{}`)
	}
}

// A driver that can have nothing ready is asked once, and takes no room.
func TestWarmWithoutAnyReady(t *testing.T) {
	const yaml = `
sessions: {memory: 512MiB}
servers:
  box: {command: box, sandbox: true, warm: 2, budget: {memory: 100MiB}}
`
	w := makeWorld(t, yaml, func(w *world) { w.boxes = &boxes{denies: errors.New("it has directories of its own")} })
	testkit.Eventually(t, "it is asked", func() bool { return w.boxes.said() == "denied" })
	w.Fill()
	for range 5 { // which is all that fit
		wantDump(t, "a session", w.opened(session.OpenOptions{Wait: -1}), "box", `{}`)
	}
	if n := w.m.greetings("box"); n != 1 {
		t.Errorf("%d handshakes", n)
	}
	if said := w.boxes.said(); said != "denied" {
		t.Errorf("asked: %s", said)
	}
}
