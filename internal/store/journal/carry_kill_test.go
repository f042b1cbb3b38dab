package journal

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/store/sqlite"
	"github.com/tine-mcp/tine/internal/store/sqlite/sqlitetest"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/torture"
)

// Of the killed gateway's sessions, those with an even number are wanted.
const killedSessions = 8

func wantedWhenKilled(session string) bool {
	return strings.HasPrefix(session, "ses_") && (session[len(session)-1]-'0')%2 == 0
}

func killedOptions(place string, db *sqlite.DB) Options {
	return Options{
		Dir: filepath.Join(place, "journal"), Index: db, SegmentSize: minSegmentSize, MaxSize: 4 * minSegmentSize,
		Wanted: wantedWhenKilled, Log: slog.New(slog.DiscardHandler),
	}
}

// TestAKillWhileCarrying kills gateways that carry over and drop segments under
// load, each a while after the one before: every call of a wanted session that
// was answered is in its story, once, in order and whole.
func TestAKillWhileCarrying(t *testing.T) {
	place := t.TempDir()
	rnd := rand.New(rand.NewPCG(7, 7))
	// What each session must have at least: its calls are numbered on over all
	// of the kills.
	var heard [killedSessions]int
	for i := range heard {
		heard[i] = -1
	}
	sqlitetest.Open(t, place).Close()
	for round := range torture.Or(3, 8) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), carryVar+"="+place)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		hear := func(text string) {
			var session, n int
			if _, err := fmt.Sscanf(text, "%d %d.", &session, &n); err != nil || !strings.HasSuffix(text, ".") {
				return // cut off by the kill
			}
			heard[session] = max(heard[session], n)
		}
		lines := bufio.NewScanner(out)
		for range 300 + rnd.IntN(500) {
			if !lines.Scan() {
				t.Error("it died by itself")
				break
			}
			hear(lines.Text())
		}
		cmd.Process.Kill()
		for lines.Scan() { // said before it died
			hear(lines.Text())
		}
		cmd.Wait()

		db := sqlitetest.Open(t, place)
		j, err := Open(context.Background(), killedOptions(place, db))
		if err != nil {
			t.Fatal(err)
		}
		check := func() {
			t.Helper()
			for i := range heard {
				session := fmt.Sprint("ses_", i)
				told, err := toldWhenKilled(j, session)
				if err != nil {
					t.Fatalf("round %d, %s: %v", round, session, err)
				}
				if wantedWhenKilled(session) && told <= heard[i] {
					t.Fatalf("round %d, %s: %d calls, the last that was heard of is %d", round, session, told, heard[i])
				}
			}
		}
		check() // while it goes on with what the dead one has left
		testkit.Eventually(t, "old segments are dropped", func() bool { return j.Stats().Bytes <= 4*minSegmentSize })
		check()
		if told, _ := toldWhenKilled(j, "ses_1"); told > 100 {
			t.Errorf("round %d: %d calls of a session that is not wanted", round, told)
		}
		j.Close()
		db.Close()
	}
	if heard[0] < 100 {
		t.Errorf("only %d calls of a session were heard of", heard[0])
	}
}

// toldWhenKilled says how many calls there are of a session, all of them in
// order and whole, and those of a wanted one from the first on.
func toldWhenKilled(j *Journal, session string) (told int, err error) {
	last := int64(0)
	err = j.Story(context.Background(), session, -1, func(e Entry) error {
		n, err := checked(&e, session)
		if err != nil {
			return err
		}
		if e.Seq <= last || wantedWhenKilled(session) && n != told {
			return fmt.Errorf("call %d with seq %d after %d calls and seq %d", n, e.Seq, told, last)
		}
		last = e.Seq
		told++
		return nil
	})
	return told, err
}

// carryForever appends calls of sessions, numbered on from the last that is
// there, and says which.
func carryForever(place string) {
	err := func() error {
		db, err := sqlite.Open(context.Background(), filepath.Join(place, "tine.db"))
		if err != nil {
			return err
		}
		j, err := Open(context.Background(), killedOptions(place, db))
		if err != nil {
			return err
		}
		failed := make(chan error)
		var say sync.Mutex
		for i := range killedSessions {
			session := fmt.Sprint("ses_", i)
			next := 0
			err := j.Story(context.Background(), session, -1, func(e Entry) error {
				n, err := checked(&e, session)
				next = n + 1
				return err
			})
			if err != nil {
				return err
			}
			go func() {
				for n := next; ; n++ {
					e := numbered(session, n, n*37%900)
					if err := j.Append(&e); err != nil {
						failed <- err
						return
					}
					say.Lock()
					fmt.Printf("%d %d.\n", i, n)
					say.Unlock()
				}
			}()
		}
		return <-failed
	}()
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
