package agent

import (
	"testing"
	"testing/synctest"

	"github.com/tine-mcp/tine/api"
)

// TestFollowing asks what is to follow from a run whose agent has started two others, of
// which one starts a third.
func TestFollowing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		holds := func(what string, run api.Run, last string, awaits int) {
			t.Helper()
			synctest.Wait()
			if got := must(r.Run(t.Context(), ada, run.ID)); got.CalledBack != last || got.Awaits != awaits {
				t.Errorf("%s: it was called back by %q and awaits %d, want %q and %d", what, got.CalledBack, got.Awaits, last, awaits)
			}
		}
		boss := r.agent(ada, "boss")
		c := r.running(boss)
		one, lead := r.child(boss), r.start(as(boss), api.NewRun{Agent: "boss", Prompt: "part", Mode: api.ModeAsyncCallback})
		holds("at work", boss, "", 0)
		r.report(c, done("started two"))
		holds("with both at work", boss, "", 2)

		r.do(one, done("one"))
		c = r.running(lead)
		synctest.Wait()
		told := r.last(boss.Session)
		holds("before it is told", boss, told.ID, 1)
		r.do(told, done("one of two"))
		holds("told of one", boss, told.ID, 1)

		below := r.child(lead)
		r.report(c, done("started one"))
		c = r.running(below)
		synctest.Wait()
		told = r.last(boss.Session)
		r.do(told, done("two of two"))
		holds("told of a lead that waits itself", boss, told.ID, 1)
		other := r.start(ada, api.NewRun{Session: boss.Session, Prompt: "something else"})
		r.do(other, done("else"))
		holds("after a prompt of a person", boss, told.ID, 1)
		holds("the prompt of a person", other, "", 0)

		r.report(c, done("below"))
		synctest.Wait()
		r.do(r.last(lead.Session), done("joined"))
		synctest.Wait()
		told = r.last(boss.Session)
		r.do(told, done("all"))
		holds("told of all", boss, told.ID, 0)
		if got := must(r.Wait(t.Context(), ada, boss.ID)); got.CalledBack != told.ID {
			t.Errorf("who waits for it is told that it was called back by %q", got.CalledBack)
		}
		if got := must(r.Run(t.Context(), vera, boss.ID)); got.CalledBack != "" {
			t.Errorf("a viewer is shown %q", got.CalledBack)
		}
	})
}

// TestFollowingIsOver has nothing follow from a run whose session is told nothing any more.
func TestFollowingIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		boss := r.agent(ada, "boss")
		c := r.running(boss)
		r.child(boss)
		r.report(c, done(""))
		again := r.start(ada, api.NewRun{Session: boss.Session, Prompt: "more"})
		must(r.Stop(t.Context(), ada, StopRun{Run: again.ID}))
		synctest.Wait()
		if got := must(r.Run(t.Context(), ada, boss.ID)); got.Awaits != 0 {
			t.Errorf("with its last run stopped it awaits %d", got.Awaits)
		}
	})
}
