package remote

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// forking has the orchestrator fork.
func forking(s *driver.Spec) { options(*s).Fork = "/instances/{remote_instance_id}/fork" }

// snapshots has it make snapshots.
func snapshots(s *driver.Spec) { options(*s).Snapshot = "/instances/{remote_instance_id}/snapshot" }

func (r *rig) state(name string) func(*driver.Spec) {
	return func(s *driver.Spec) { s.State = filepath.Join(r.home, "states", name) }
}

func (r *rig) sweep(t *testing.T, d *Driver, known ...string) []string {
	t.Helper()
	keep := make(map[string]bool)
	for _, k := range known {
		keep[k] = true
	}
	gone, err := d.Sweep(t.Context(), filepath.Join(r.home, "instances"), keep)
	if err != nil {
		t.Fatalf("sweep: %v", err)
	}
	return gone
}

func TestSweepRemovesWhatNobodyHas(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*driver.Spec){"http": func(*driver.Spec) {}, "tools": tools} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			mine := r.start(t, r.d, r.spec(change))
			for range 3 {
				if _, err := r.d.Start(t.Context(), r.spec(change)); err != nil {
					t.Fatal(err)
				}
			}
			r.d.Close() // what it started is not stopped
			next := r.driver(t)
			if gone := r.sweep(t, next, mine.Handle().Dir); len(gone) != 3 {
				t.Errorf("swept %v", gone)
			}
			if err := next.Recover(t.Context(), nil, nil, true); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, "the removal of the others", func() bool { return r.left() == 1 })
			inst, err := next.Adopt(t.Context(), mine.Handle(), nil)
			if err != nil {
				t.Fatalf("adopt: %v", err)
			}
			echo(t, inst, "still here")
			stop(t, inst)
			if _, err := next.Adopt(t.Context(), mine.Handle(), nil); !errors.Is(err, driver.ErrGone) {
				t.Errorf("adopted after its end: %v", err)
			}
			r.clears(t)
		})
	}
}

// A gateway that dies before it hears what came of a request leaves it to the
// next one.
func TestALostAnswerIsAskedFor(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*driver.Spec){"http": func(*driver.Spec) {}, "tools": tools} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			spec := r.spec(change)
			made, die := make(chan struct{}), make(chan struct{})
			r.before = func(w http.ResponseWriter, req *http.Request, body []byte) bool {
				switch {
				case name == "http" && req.URL.Path == "/instances":
					r.create(lateWriter{w, func() { close(made); <-die }}, req)
				case name == "tools" && strings.Contains(string(body), "initialize_session"):
					r.make(nil)
					r.set(func() {
						r.before = nil
						for id := range r.boxes {
							r.keys[req.Header.Get(headerKey)] = `{"rk_session_id":"` + id + `"}`
						}
					})
					close(made)
					<-die
				default:
					return false
				}
				return true
			}
			failed := make(chan error)
			go func() {
				_, err := r.d.Start(t.Context(), spec)
				failed <- err
			}()
			<-made
			r.d.Close()
			if err := <-failed; err == nil {
				t.Error("it started")
			}
			if n := r.left(); n != 1 {
				t.Errorf("%d are there, want 1", n)
			}
			r.set(func() { r.before = nil })
			close(die)
			if gone := r.sweep(t, r.driver(t)); len(gone) != 1 {
				t.Errorf("swept %v", gone)
			}
			r.clears(t)
		})
	}
}

// lateWriter does something between what a handler did and what it says.
type lateWriter struct {
	http.ResponseWriter
	wait func()
}

func (w lateWriter) Write(b []byte) (int, error) {
	w.wait()
	return w.ResponseWriter.Write(b)
}

// An orchestrator that is away when a gateway starts gets its requests when it is back.
func TestSweepGoesOnInTheBackground(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if _, err := r.d.Start(t.Context(), r.spec(func(s *driver.Spec) { options(*s).Attempts = 1 })); err != nil {
		t.Fatal(err)
	}
	r.d.Close()
	r.set(func() { r.before = times(always, "", refuse(503)) })
	next := r.driver(t)
	if gone := r.sweep(t, next); len(gone) != 1 {
		t.Errorf("swept %v", gone)
	}
	next.Close() // it does not live to see it either
	if n := r.left(); n != 1 {
		t.Errorf("%d are there, want 1", n)
	}
	r.set(func() { r.before = nil })
	r.sweep(t, r.driver(t))
	r.clears(t)
}

func TestRecoverRemovesStatesAndSnapshotsOfNobody(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*driver.Spec){"forks": forking, "snapshots": snapshots} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			spec := func(state string) driver.Spec { return r.spec(change, through, r.state(state)) }
			a := spec("a")
			if err := r.d.Seed(t.Context(), a, driver.Source{}); err != nil {
				t.Fatal(err)
			}
			inst := r.start(t, r.d, a)
			p := drivertest.NewPeer(inst, dial(t, inst))
			p.Call(t, "put", map[string]any{"key": "k", "value": "v"})
			stays, err := r.d.Freeze(t.Context(), a, inst, "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.d.Freeze(t.Context(), a, inst, ""); err != nil {
				t.Fatal(err)
			}
			for _, child := range []string{"b", "c"} {
				if err := r.d.Seed(t.Context(), spec(child), driver.Source{From: &stays}); err != nil {
					t.Fatal(err)
				}
			}
			h := inst.Handle()
			if err := inst.Leave(); err != nil {
				t.Fatal(err)
			}
			if n := r.left(); n != 5 {
				t.Fatalf("%d are there, want 5", n)
			}
			r.d.Close()

			next := r.driver(t)
			r.sweep(t, next, h.Dir)
			if err := next.Recover(t.Context(), []string{a.State, spec("b").State}, []driver.Snapshot{stays}, true); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, "the removal of the others", func() bool { return r.left() == 3 })
			adopted, err := next.Adopt(t.Context(), h, nil)
			if err != nil {
				t.Fatalf("adopt: %v", err)
			}
			b := r.start(t, next, spec("b"))
			d := spec("d")
			if err := next.Seed(t.Context(), d, driver.Source{From: &stays, Take: true}); err != nil {
				t.Fatal(err)
			}
			all := []driver.Instance{adopted, b, r.start(t, next, d)}
			for _, inst := range all {
				if got := drivertest.NewPeer(inst, dial(t, inst)).Call(t, "get", map[string]any{"key": "k"}); got != "v" {
					t.Errorf("got %q", got)
				}
				stop(t, inst)
			}
			for _, s := range []driver.Spec{a, spec("b"), d} {
				if err := next.Erase(t.Context(), s); err != nil {
					t.Errorf("erase: %v", err)
				}
			}
			if err := next.Discard(t.Context(), stays); err != nil {
				t.Errorf("discard: %v", err)
			}
			r.clears(t)
		})
	}
}

// A state whose instance was forgotten is lost, once, and begins anew.
func TestAForgottenState(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	spec := r.spec(through, forking, r.state("a"))
	if err := r.d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	inst := r.start(t, r.d, spec)
	s := dial(t, inst).Stream
	r.forget()
	if _, err := r.d.Freeze(t.Context(), spec, inst, ""); !errors.Is(err, driver.ErrLost) {
		t.Errorf("freeze: %v", err)
	}
	if got := ask(t, s, "tools/call", call); !strings.Contains(got, `"kind":"lost"`) {
		t.Errorf("got %s", got)
	}
	<-inst.Done()
	stop(t, inst)
	again := r.start(t, r.d, spec)
	echo(t, again, "anew")
	stop(t, again)
	if n := r.left(); n != 1 {
		t.Errorf("%d are there, want 1", n)
	}
	// What can't be recognized any more is not taken for what it was.
	if err := os.RemoveAll(r.ledger()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.d.Start(t.Context(), spec); !errors.Is(err, driver.ErrLost) {
		t.Errorf("start: %v", err)
	}
	last := r.start(t, r.d, spec)
	stop(t, last)
	if err := r.d.Erase(t.Context(), spec); err != nil {
		t.Error(err)
	}
}

func TestWhatCanNotBeDone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	plain := r.spec(r.state("a"))
	const why = `the orchestrator of server "box" is not known to fork; name its endpoint in servers.box.remote.fork or servers.box.remote.snapshot`
	if got, reason := r.d.Carries(plain); got != driver.CarryNone || reason != why {
		t.Errorf("it carries %q: %s", got, reason)
	}
	if err := r.d.Seed(t.Context(), plain, driver.Source{}); err != nil {
		t.Errorf("seed: %v", err)
	}
	_, err := r.d.Freeze(t.Context(), plain, nil, "")
	says(t, err, "servers.box.remote.fork")
	forks := r.spec(forking, r.state("b"))
	if err := r.d.Seed(t.Context(), forks, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	snap, err := r.d.Freeze(t.Context(), forks, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.d.CheckExport(t.Context(), snap); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("check of an export: %v", err)
	}
	if err := r.d.Export(t.Context(), snap, nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("export: %v", err)
	}
	if _, err := r.d.Import(t.Context(), "box", "", nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("import: %v", err)
	}
	says(t, r.d.Seed(t.Context(), r.spec(r.state("c")), driver.Source{From: &snap}), "neither fork nor begin")
	for _, s := range []driver.Spec{plain, forks} {
		if err := r.d.Erase(t.Context(), s); err != nil {
			t.Error(err)
		}
	}
	r.clears(t)
}
