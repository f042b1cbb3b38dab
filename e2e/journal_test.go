//go:build unix

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/e2e/teller"
	"github.com/tine-mcp/tine/internal/store/journal"
)

const quiet = "policy: {retry: off, breaker: off}"

// segments are the files of the journal, oldest first.
func (g *gateway) segments(t testing.TB) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(g.state(), "journal", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// TestJournalKill kills the gateway in the middle of many calls, again and again,
// and holds that every answered call is in the journal.
func TestJournalKill(t *testing.T) {
	t.Parallel()
	const rounds, clients, each = 3, 12, 1500
	g := startGateway(t, "servers:\n"+
		"  web: {url: "+tellHTTP(t, &teller.Server{})+", "+quiet+"}\n")
	l := newLoad(t, g.url+"/mcp/web", "")
	for round := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		began, before := time.Now(), l.count.Load()
		var running sync.WaitGroup
		running.Go(func() { l.run(ctx, clients) })
		l.wait(t, before+each)
		rate := float64(l.count.Load()-before) / time.Since(began).Seconds()
		g.kill()
		cancel()
		running.Wait()
		files := g.segments(t)
		if round > 0 {
			// As if it had died within a write.
			if err := appendTo(files[len(files)-1], `{"seq":99999,"id":"call_torn","at":"2026-`); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		all := g.journal(t, client.CallQuery{})
		cutOff := checkJournal(t, l, all)
		t.Logf("round %d: %.0f calls a second, %d made, %d answered, %d in the journal, %d of them cut off", round, rate, l.made.Load(), l.count.Load(), len(all), cutOff)
		if cutOff > (round+1)*clients {
			t.Errorf("%d calls were cut off in %d rounds of %d clients", cutOff, round+1, clients)
		}
		if t.Failed() {
			break
		}
	}
	// The command line sees the same.
	out, err := g.tine(t.Context(), "calls", "--json", "--limit", "100000")
	if err != nil {
		t.Fatal(err)
	}
	if n, all := strings.Count(out, `"id":`), len(g.journal(t, client.CallQuery{})); n != all {
		t.Errorf("tine calls --json lists %d calls of %d", n, all)
	}
}

// checkJournal holds a journal against what callers were answered. Of calls that a kill cut
// off, which were not answered, the arguments are not known; it returns how many they are.
func checkJournal(t *testing.T, l *load, all []api.Call) (cutOff int) {
	t.Helper()
	byWord, ids := make(map[string]api.Call, len(all)), make(map[string]bool, len(all))
	for _, c := range all {
		if ids[c.ID] {
			t.Errorf("the id %s is there twice", c.ID)
		}
		ids[c.ID] = true
		if strings.HasPrefix(c.Error, "the gateway was killed while this call was running") {
			if cutOff++; c.Outcome != string(api.KindInfrastructure) || c.Arguments != nil {
				t.Errorf("a call that was cut off: %+v", c)
			}
			continue
		}
		word := wordOf(t, c)
		if other, ok := byWord[word]; ok {
			t.Errorf("the call with %q is there as %s and %s", word, c.ID, other.ID)
		}
		byWord[word] = c
	}
	missing := 0
	l.answered.Range(func(word, outcome any) bool {
		switch c, ok := byWord[word.(string)]; {
		case !ok:
			missing++
		case c.Outcome != outcome:
			t.Errorf("the call with %q ended as %s, the journal says %s", word, outcome, c.Outcome)
		case c.Name == "status" && c.Error == "":
			t.Errorf("call %s failed and nothing says why", c.ID)
		}
		return true
	})
	if missing > 0 {
		t.Errorf("%d calls were answered and are not in the journal", missing)
	}
	return cutOff
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// TestJournalDamage damages a line in the middle and one at the end: the others
// are there, and so is what comes after.
func TestJournalDamage(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n  web: {url: "+tellHTTP(t, &teller.Server{})+", "+quiet+"}\n")
	l := newLoad(t, g.url+"/mcp/web", "")
	for range 50 {
		if err := l.one(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	g.kill()
	file := g.segments(t)[0]
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	word := string(regexp.MustCompile(`word-\d+\.`).Find(lines[20]))
	copy(lines[20][len(lines[20])/3:], "\x00\x00\xff\"}}{{\\")
	if err := os.WriteFile(file, append(bytes.Join(lines, nil), `{"seq":`...), 0o600); err != nil {
		t.Fatal(err)
	}
	// The index is thrown away as well, so that all has to come from the file.
	for _, db := range []string{"tine.db", "tine.db-wal", "tine.db-shm"} {
		if err := os.Remove(filepath.Join(g.state(), db)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if err := g.start(); err == nil || !strings.Contains(err.Error(), "tine state restore") {
		t.Fatalf("a start without a database beside a journal: %v", err)
	}
	g.mustTine(t, "state", "restore", "--from", "folders", "--yes")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := l.one(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	l.answered.Delete(word)
	all := g.journal(t, client.CallQuery{})
	checkJournal(t, l, all)
	if len(all) != 59 {
		t.Errorf("%d calls in the journal, want 59", len(all))
	}
}

// TestJournalBounds writes much more than may be kept, and then lets it grow old.
func TestJournalBounds(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	g := startGateway(t, "journal: {max_size: 1MiB}\nservers:\n  web: {url: "+tellHTTP(t, &teller.Server{})+", "+quiet+"}\n")
	l := newLoad(t, g.url+"/mcp/web", strings.Repeat("x", 8<<10))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.run(ctx, 4) })
	for n := int64(100); n <= 1000; n += 100 {
		l.wait(t, n)
		// What is kept for sessions is carried over before its segment goes, and the
		// files are not all measured at one moment.
		err := eventually(func() error {
			if size := folderSize(t, filepath.Join(g.state(), "journal")); size > most {
				return fmt.Errorf("after %d calls the journal has %d bytes", n, size)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	cancel()
	running.Wait()
	if err := l.one(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := g.journal(t, client.CallQuery{})
	// Of the four calls that were broken off some may have ended after it.
	newest := fmt.Sprintf("word-%d.", l.made.Load())
	if !slices.ContainsFunc(all[:min(len(all), 5)], func(c api.Call) bool { return wordOf(t, c) == newest }) {
		t.Fatalf("%d calls, and the newest is not among the first", len(all))
	}
	if kept := int64(len(all)) * 16 << 10; len(all) < 20 || kept > 2*most {
		t.Errorf("%d calls of about 16 KiB are kept in 1 MiB", len(all))
	}
	// What is listed can be shown.
	c := g.control(t, "")
	for _, call := range []api.Call{all[0], all[len(all)-1]} {
		if one, err := c.JournalCall(t.Context(), call.ID); err != nil || len(one.Result) == 0 && one.Outcome == "ok" {
			t.Errorf("call %s: %v", call.ID, err)
		}
	}
	index := int64(0)
	for _, name := range []string{"tine.db", "tine.db-wal"} {
		if info, err := os.Stat(filepath.Join(g.state(), name)); err == nil {
			index += info.Size()
		}
	}
	if index > 8<<20 {
		t.Errorf("the index has %d bytes", index)
	}
	if code, err := g.stop(); err != nil || code != 0 {
		t.Fatal(code, err)
	}
	g.age(t)
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	if err := l.one(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := g.journal(t, client.CallQuery{}); len(all) != 1 {
		t.Errorf("%d calls in a journal whose calls but one are too old", len(all))
	}
	if n := len(g.segments(t)); n != 1 {
		t.Errorf("%d files", n)
	}
}

// age makes the journal of a gateway that does not run twenty years old.
func (g *gateway) age(t *testing.T) {
	t.Helper()
	date := regexp.MustCompile(`"20\d\d-`)
	then := time.Now().AddDate(-20, 0, 0)
	year := fmt.Sprintf(`"%d-`, then.Year())
	for _, file := range g.segments(t) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, date.ReplaceAll(data, []byte(year)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, then, then); err != nil {
			t.Fatal(err)
		}
	}
}

func folderSize(t testing.TB, dir string) (size int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if os.IsNotExist(err) {
			return nil // dropped just now
		}
		if err == nil && !d.IsDir() && d.Name() != journal.UnderwayName { // which is full of holes
			size += info.Size()
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return size
}
