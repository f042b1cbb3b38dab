package agent

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/tine-mcp/tine/api"
)

// TestReadmit takes the access of the owner of agents away, and gives it back.
func TestReadmit(t *testing.T) {
	var out atomic.Bool
	only := func(r *rig) {
		r.o.Admits = func(_ context.Context, owner string, _ json.RawMessage) (bool, error) {
			return owner != "ada" || !out.Load(), nil
		}
	}
	readmit := func(t *testing.T, r *rig, in bool) {
		t.Helper()
		out.Store(!in)
		if err := r.Readmit(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	}
	bubble(t, func(t *testing.T, r *rig) {
		// One idle agent is to be told of two children, one of which is at work.
		boss := r.agent(ada, "boss")
		c := r.running(boss)
		first, second := r.child(boss), r.child(boss)
		one := r.running(first)
		r.running(second)
		pending := r.agent(ada, "worker")
		other := r.agent(bob, "worker")
		r.report(c, done("started two"))
		out.Store(true)
		r.report(one, done("one"))
		synctest.Wait()
		if r.last(boss.Session).ID != boss.ID || r.waiting() != 1 {
			t.Fatal("an agent is resumed whose owner may not come in")
		}
		readmit(t, r, false)
		for run, want := range map[string]string{second.ID: api.RunStopping, pending.ID: api.RunStopped, other.ID: api.RunPending} {
			got, err := r.Run(t.Context(), otto, run)
			if err != nil || got.State != want || want != api.RunPending && got.StoppedBy != "the end of its owner's access" {
				t.Errorf("%+v, %v; want %s", got, err, want)
			}
		}
		_, err := r.Resume(t.Context(), otto, NewRun{NewRun: api.NewRun{Session: boss.Session, Prompt: "go on"}})
		if err == nil || !strings.Contains(err.Error(), "its token was revoked") {
			t.Errorf("an operator resumes it: %v", err)
		}
		readmit(t, r, true)
		carrier := r.last(boss.Session)
		if carrier.ID == boss.ID || !strings.Contains(prompt(carrier), "one") {
			t.Errorf("told when the owner is back: %+v", carrier)
		}
	}, only)
}
