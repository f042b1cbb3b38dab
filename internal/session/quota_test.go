package session_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/testkit"
)

const small = `
servers:
  own: {command: own, state: [data], args: ["${state.data}"], budget: {memory: 100MiB}}
  mem: {builtin: memory, budget: {memory: 1MiB}}
`

func TestQuotas(t *testing.T) {
	w := newWorld(t, "sessions: {max: 5, per_principal: 2, wait: 0}\n"+small)
	ctx := t.Context()
	of := func(name string) session.OpenOptions { return session.OpenOptions{Owner: session.Owner{Name: name}} }
	first := w.opened(of("ada"))
	w.opened(of("ada"))
	_, _, err := w.OpenSession(ctx, of("ada"))
	testkit.Has(t, "a third of one", failure(err), "refused: ", "2 sessions", "per_principal")
	_, err = w.Fork(ctx, first, session.ForkOptions{Count: 1})
	testkit.Has(t, "a fork of a third", failure(err), "refused: ", "per_principal")
	bob := w.opened(of("bob"))
	_, err = w.Fork(ctx, bob, session.ForkOptions{Count: 2})
	testkit.Has(t, "a fork of two", failure(err), "refused: ", "per_principal")
	w.fork(bob, 1)
	w.opened(of("eve"))
	_, _, err = w.OpenSession(ctx, of("eve"))
	testkit.Has(t, "a sixth", failure(err), "refused: ", "5 sessions", "sessions.max")
	// The implicit ones were not asked for.
	w.session("eve")
	w.CloseSession(ctx, first)
	w.CloseSession(ctx, first)
	w.opened(of("eve"))
	if _, _, err = w.OpenSession(ctx, of("eve")); err == nil {
		t.Error("closing twice gave two places back")
	}
	// They are counted after a restart too, and can be raised.
	w.reopen("sessions: {max: 5, per_principal: 2, wait: 0}\n" + small)
	if _, _, err = w.OpenSession(ctx, of("ada")); err == nil {
		t.Error("places are forgotten over a restart")
	}
	w.apply("sessions: {max: 0, per_principal: 0, wait: 0}\n" + small)
	for range 5 {
		w.opened(of("ada"))
	}
}

// prompt is small with a server that runs from the beginning.
var prompt = strings.Replace(small, "command: own,", "command: own, eager: true,", 1)

func TestBudget(t *testing.T) {
	for name, tt := range map[string]struct {
		bound string
		want  []string
	}{
		"memory":    {"memory: 350MiB", []string{"100 MiB", "300 MiB of 350 MiB", "0 of this kind would fit", "sessions.memory"}},
		"instances": {"instances: 3", []string{"1 instance ", "3 of 3 instances", "0 of this kind would fit", "sessions.instances"}},
	} {
		t.Run(name, func(t *testing.T) {
			yaml := "sessions: {wait: 0, " + tt.bound + "}\n" + prompt
			w := newWorld(t, yaml)
			ctx := t.Context()
			a := w.opened(session.OpenOptions{})
			_, err := w.Fork(ctx, a, session.ForkOptions{Count: 3})
			testkit.Has(t, "a fork of three", failure(err), "refused: ", "3 sessions need", "servers: [own]", "2 of this kind would fit")
			_, err = w.Fork(ctx, a, session.ForkOptions{Count: 50})
			testkit.Has(t, "a fork that never fits", failure(err), "refused: ", "50 sessions need")
			b := w.fork(a, 2)
			_, _, err = w.OpenSession(ctx, session.OpenOptions{})
			testkit.Has(t, "one too many", failure(err), append(tt.want, "refused: ", "servers: [own]")...)
			// What needs nothing of it has room.
			light := w.opened(session.OpenOptions{Servers: []string{"mem"}})
			w.CloseSession(ctx, b[0])
			w.CloseSession(ctx, b[0])
			w.opened(session.OpenOptions{})
			if _, _, err = w.OpenSession(ctx, session.OpenOptions{}); err == nil {
				t.Error("closing twice gave room for two")
			}
			w.reopen(yaml)
			if _, _, err = w.OpenSession(ctx, session.OpenOptions{}); err == nil {
				t.Error("what is in use is forgotten over a restart")
			}
			w.CloseSession(ctx, w.Get(light.ID))
			w.CloseSession(ctx, w.Get(a.ID))
			w.opened(session.OpenOptions{})
		})
	}
}

// A bound that is raised lets those in who wait.
func TestBudgetRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "sessions: {instances: 1}\n"+prompt)
		w.opened(session.OpenOptions{})
		opened := make(chan error, 1)
		go func() {
			_, _, err := w.OpenSession(context.Background(), session.OpenOptions{Wait: time.Hour})
			opened <- err
		}()
		synctest.Wait()
		w.apply("sessions: {instances: 2}\n" + prompt)
		if err := <-opened; err != nil {
			t.Error(failure(err))
		}
	})
}

func TestManyOpensAtOnce(t *testing.T) {
	const most, all = 300, 1000
	w := newWorld(t, fmt.Sprintf("sessions: {max: 0, per_principal: 0, instances: %d, memory: off, wait: 0}\n", most)+prompt)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var opened []*session.Session
	ids := map[string]bool{}
	for n := range all {
		wg.Go(func() {
			s, token, err := w.OpenSession(context.Background(), session.OpenOptions{Owner: session.Owner{Name: fmt.Sprint(n % 7)}})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				testkit.Has(t, "a refusal", failure(err), "refused: ", "would fit")
				return
			}
			opened = append(opened, s)
			ids[s.ID], ids[token] = true, true
		})
	}
	wg.Wait()
	if len(opened) != most || len(ids) != 2*most || len(w.Sessions()) != most {
		t.Fatalf("%d opened with %d ids and tokens, %d are known", len(opened), len(ids), len(w.Sessions()))
	}
	for n, s := range opened {
		wg.Go(func() {
			if n%30 == 0 {
				set(t, s, "own", "n", fmt.Sprint(n))
				wantDump(t, "one of many", s, "own", fmt.Sprintf(`{"n":"%d"}`, n))
			}
			w.CloseSession(context.Background(), s)
		})
	}
	wg.Wait()
	w.runs("")
	wantLeft(t, w)
	if stored, err := w.db.Sessions(t.Context()); err != nil || len(stored) != 0 {
		t.Errorf("%d are recorded as open, %v", len(stored), err)
	}
	// All of it is free again.
	if _, err := w.Fork(t.Context(), w.opened(session.OpenOptions{}), session.ForkOptions{Count: most - 1}); err != nil {
		t.Error(failure(err))
	}
}
