package sqlite

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

// With this variable the test binary is a gateway that writes and says what,
// until it is killed.
const writeVar = "TINE_TEST_WRITE_DB"

// forked is how many sessions it writes at once.
const forked = 20

func TestWritesSurviveAKill(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "tine.db")
	var said []string
	for range 3 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writeVar+"="+path)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 50 && lines.Scan(); n++ {
			said = append(said, lines.Text())
		}
		cmd.Process.Kill()
		for lines.Scan() { // said before it died
			said = append(said, lines.Text())
		}
		cmd.Wait()

		d := mustOpen(t, path, schema)
		handles := make(map[string]bool)
		for _, h := range must(d.Handles(ctx)) {
			handles[h.Key] = true
		}
		snapshots := make(map[string]bool)
		for _, s := range must(d.Snapshots(ctx)) {
			snapshots[s.ID] = true
		}
		children := make(map[string]int)
		for _, s := range must(d.Sessions(ctx)) {
			children[s.Parent]++
		}
		for _, key := range said {
			old, fresh, err := d.BeginCreation(ctx, store.Creation{Key: key}, time.Time{})
			if !handles[key] || !snapshots[key] || children[key] == 0 || len(must(d.Events(ctx, key))) == 0 || fresh || old.Answer == nil || err != nil {
				t.Errorf("of %q, which was written, something is gone", key)
			}
		}
		callbacks := must(d.WaitingCallbacks(ctx))
		if runs := must(d.Runs(ctx, store.RunFilter{Limit: 1e6})); len(runs) < len(said) || len(runs) != len(callbacks) {
			t.Errorf("%d were written, and there are %d runs and %d callbacks", len(said), len(runs), len(callbacks))
		} else {
			for _, r := range runs {
				if len(must(d.Events(ctx, r.ID+"-run"))) != 1 {
					t.Errorf("of run %q its event is gone", r.ID)
				}
			}
		}
		for parent, n := range children {
			if n != forked {
				t.Errorf("%d of %d sessions that were written at once are there", n, forked)
			}
			if n := len(must(d.Events(ctx, parent))); n != 0 && n != forked {
				t.Errorf("%d of %d events that were written at once are there", n, forked)
			}
		}
		d.Close()
	}
	if len(said) < 150 {
		t.Errorf("only %d were written", len(said))
	}
}

func writeForever(path string) {
	ctx := context.Background()
	d, err := Open(ctx, path)
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	check(err)
	for i := 0; ; i++ {
		key := fmt.Sprintf("%d-%d", os.Getpid(), i)
		sessions, events := make([]store.Session, forked), make([]store.Event, forked)
		for j := range forked {
			sessions[j] = store.Session{ID: fmt.Sprintf("%s-%d", key, j), Parent: key}
			events[j] = store.Event{Session: key}
		}
		_, _, err := d.BeginCreation(ctx, store.Creation{Key: key}, time.Time{})
		check(err)
		check(d.PutHandle(ctx, store.Handle{Key: key}))
		check(d.PutSnapshot(ctx, store.Snapshot{ID: key}))
		check(d.PutSessions(ctx, sessions...))
		check(d.PutEvents(ctx, events...))
		check(d.ChangeAgents(ctx, func(tx store.AgentTx) error {
			return errors.Join(tx.PutRun(store.Run{ID: key, Session: key}), tx.PutCallback(store.Callback{Parent: key}), tx.PutEvents(store.Event{Session: key + "-run"}))
		}))
		check(d.EndCreation(ctx, "", key, json.RawMessage(`{}`)))
		os.Stdout.WriteString(key + "\n")
	}
}

// must is for calls whose failure ends the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
