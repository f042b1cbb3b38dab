//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"
)

// waitFor returns when f says so, or the other work has ended.
func waitFor(t testing.TB, done <-chan error, f func(ctx context.Context) (bool, error)) {
	t.Helper()
	if err := eventually(func() error {
		if len(done) > 0 { // which the caller reads
			return nil
		}
		ok, err := f(t.Context())
		if err != nil {
			return final{err}
		}
		if !ok {
			return errors.New("not yet")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestRolloutKilled kills the gateway in the middle of initialize_session, of a
// call, and of cleanup_session, with two instances from a template each. The next
// gateway goes on with what had been answered, and after everything that it lists
// is cleaned up nothing is left, whether it had been answered or not.
func TestRolloutKilled(t *testing.T) {
	t.Parallel()
	onEngines(t, oneEngine, func(t *testing.T, e *engine) {
		g, id := startOn(t, e,
			e.yaml("kv", imageStatic, `command: [stateserver, -dir, /data], state: [/data]`)+
				e.yaml("whole", imageStatic, `command: [stateserver, -dir, /data], state: [root], template_path: /data`)+
				yamlState(t, "prog")+"  mem: {builtin: memory}\n",
			func(dir string) { writeLog(t, filepath.Join(dir, "start"), map[string]string{"a": "template"}) })
		r := newTrainer(t, g)
		backends := []object{
			{"backend_name_ref": "kv", "template_details": "start", "num_instances": 2},
			{"backend_name_ref": "whole", "template_details": "start"},
			{"backend_name_ref": "prog", "template_details": "start"},
			{"backend_name_ref": "mem"},
		}
		again := func() {
			t.Helper()
			g.kill()
			if err := g.start(); err != nil {
				t.Fatal(err)
			}
			r = newTrainer(t, g)
		}
		owned := func(ctx context.Context) (int, error) {
			all, err := e.owned(ctx, "tine.gateway="+id)
			return len(all), err
		}
		// Of the session that lives through all of it nothing is lost.
		stays := r.mustInit(t, backends[0])
		r.mustUse(t, stays.ID, "kv", 1, "put", object{"key": "b", "value": "mine"})
		before, err := owned(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		// During initialize_session: when the engine has the first things of it, and
		// later by chance.
		for round := range 2 {
			done := make(chan error, 1)
			go func() {
				_, err := r.init(t.Context(), backends...)
				done <- err
			}()
			waitFor(t, done, func(ctx context.Context) (bool, error) {
				n, err := owned(ctx)
				return n > before, err
			})
			if round > 0 {
				time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond) // killed at any moment
			}
			again()
			<-done
			r.mustHold(t, stays.ID, "kv", 1, map[string]string{"a": "template", "b": "mine"})
		}
		for _, s := range mustListed(t, r) {
			if s != stays.ID { // one that was whole is kept, and works
				r.mustHold(t, s, "kv", 1, map[string]string{"a": "template"})
				r.mustClean(t, s)
			}
		}

		// During a call: what was answered before it is there, the session goes on.
		s := r.mustInit(t, backends...)
		for _, backend := range []string{"kv", "whole", "prog"} {
			r.mustUse(t, s.ID, backend, nil, "put", object{"key": "b", "value": "answered"})
			done := make(chan error, 1)
			go func() {
				_, err := r.use(t.Context(), s.ID, backend, nil, "put", object{"key": "c", "value": "asked", "ms": 600})
				done <- err
			}()
			waitFor(t, done, func(ctx context.Context) (bool, error) {
				now, err := g.client(t).Session(ctx, s.ID)
				return err == nil && now.InFlight > 0, err
			})
			again()
			<-done
			if err := eventually(func() error { // the server may still be at it
				got, err := r.values(t.Context(), s.ID, backend, nil)
				if err == nil && (got["a"] != "template" || got["b"] != "answered") {
					err = final{fmt.Errorf("%s has %v after the gateway was killed", backend, got)}
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			r.mustUse(t, s.ID, backend, nil, "put", object{"key": "d", "value": "after"})
		}
		r.mustHold(t, s.ID, "kv", 1, map[string]string{"a": "template"})

		// During cleanup_session.
		for round := range 2 {
			if round > 0 {
				s = r.mustInit(t, backends...)
			}
			ofSession := func(ctx context.Context) (int, error) {
				all, err := e.owned(ctx, "tine.session="+s.ID)
				return len(all), err
			}
			had, err := ofSession(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- r.do(t.Context(), "cleanup_session", object{"rk_session_id": s.ID}, nil) }()
			if round == 0 {
				waitFor(t, done, func(ctx context.Context) (bool, error) {
					n, err := ofSession(ctx)
					return n < had, err
				})
			}
			again()
			<-done
			var got cleaned
			r.must(t, "cleanup_session", object{"rk_session_id": s.ID}, &got)
			if got.Status != statusCleaned && got.Status != statusGone {
				t.Errorf("cleanup_session after the gateway was killed over it answers %+v", got)
			}
			if err := eventually(func() error {
				n, err := ofSession(t.Context())
				if err == nil && n > 0 {
					err = fmt.Errorf("the engine has %d things of session %s", n, s.ID)
				}
				return err
			}); err != nil {
				t.Error(err)
			}
		}
		r.mustHold(t, stays.ID, "kv", 1, map[string]string{"a": "template", "b": "mine"})
		r.cleanListed(t)
		r.nothingOpen(t)
		nothingLeft(t, g)
		e.nothingOf(t, id)
		if _, err := g.stop(); err != nil {
			t.Fatal(err)
		}
		e.nothingOf(t, id)
	})
}
