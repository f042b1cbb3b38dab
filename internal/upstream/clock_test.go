package upstream

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A call's time stands still while a question waits for the client, and goes on
// where it stopped.
func TestQuestionsStopTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		var mu sync.Mutex
		ended := make(map[string]bool)
		start := func(name string) *deadline { // 10 s each, 30 s in all
			return c.add(10*time.Second, 30*time.Second, func(error) {
				mu.Lock()
				defer mu.Unlock()
				ended[name] = true
			})
		}
		want := func(what string, over ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(ended) != len(over) {
				t.Errorf("%s: ended are %v, want %v", what, ended, over)
			}
			for _, name := range over {
				if !ended[name] {
					t.Errorf("%s: %s goes on", what, name)
				}
			}
		}
		asked, twice, other := start("asked"), start("twice"), start("other")
		time.Sleep(5 * time.Second)
		answered, first, second := asked.question(), twice.question(), twice.question()
		time.Sleep(time.Hour)
		want("while questions are open", "other")
		answered()
		first()
		time.Sleep(3 * time.Second)
		want("with time left", "other")
		time.Sleep(4 * time.Second)
		want("with the rest of its time over", "other", "asked")
		twice.progress() // while it is asked: the whole time again, from the answer on
		second()
		time.Sleep(8 * time.Second)
		want("after progress", "other", "asked")
		time.Sleep(4 * time.Second)
		want("at the end", "other", "asked", "twice")

		// Of a question that belongs to no call in particular, all wait for the
		// answer; what begins after it can't have caused it.
		clear(ended)
		a, b := start("a"), start("b")
		all := c.question()
		after := start("after")
		time.Sleep(time.Minute)
		want("of one that may be any's", "after")
		all()
		time.Sleep(12 * time.Second)
		want("at the end", "after", "a", "b")

		// Progress never goes beyond the most, which stands still as well.
		clear(ended)
		busy := start("busy")
		pause := busy.question()
		time.Sleep(time.Hour)
		pause()
		for range 4 {
			time.Sleep(8 * time.Second)
			busy.progress()
		}
		want("beyond the most", "busy")
		for _, d := range []*deadline{asked, twice, other, a, b, after, busy} {
			c.remove(d)
		}
		time.Sleep(2 * clockEvery) // the clock ends its look
	})
}
