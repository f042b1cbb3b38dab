package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

// begun is a call that has begun, as a recorder notes it.
func begun(session, name string) Entry {
	return Entry{At: time.Now(), Principal: "ada", Session: session, Server: "files", Method: "tools/call", Name: name, Mode: "full"}
}

// cutOffCalls are the names of those that were cut off, the oldest first.
func (r *rig) cutOffCalls() string {
	r.t.Helper()
	var names []string
	for _, e := range r.list(store.CallFilter{Failed: true, Limit: 1000}) {
		if e.Outcome != "infrastructure" || e.Error != cutOff || e.Principal != "ada" || e.Server != "files" || e.Mode != "full" || time.Since(e.At) > time.Hour {
			r.t.Errorf("%+v", e)
		}
		names = append([]string{e.Session + "/" + e.Name}, names...)
	}
	return strings.Join(names, " ")
}

// TestKillLeavesANote kills a gateway with running calls: those that had ended are there as
// they ended, the others once, as cut off, also when the next gateway is killed, too.
func TestKillLeavesANote(t *testing.T) {
	r := newRig(t, Options{})
	for _, name := range []string{"first", "second", "ended", "third"} {
		e := begun("s1", name)
		n := r.Begin(&e)
		if name == "ended" {
			r.End(n)
		}
	}
	long := begun("s2", strings.Repeat("n", 2000))
	r.Begin(&long)
	// Killed between the line and the end of the note.
	written := begun("s1", "written")
	r.Begin(&written)
	written.Outcome = "ok"
	if err := r.Append(&written); err != nil {
		t.Fatal(err)
	}
	r.crash()
	r.up()
	_, _, most := noted(&long, notePlain)
	want := "s1/first s1/second s1/third s2/" + strings.Repeat("n", most)
	if got := r.cutOffCalls(); got != want {
		t.Errorf("cut off: %s", got)
	}
	if all := r.list(store.CallFilter{}); len(all) != 5 {
		t.Errorf("%d calls are in the journal", len(all))
	}
	next := begun("s1", "fourth")
	r.Begin(&next)
	r.crash()
	r.up()
	if got := r.cutOffCalls(); got != want+" s1/fourth" {
		t.Errorf("cut off: %s", got)
	}
	r.again()
	if got := r.cutOffCalls(); got != want+" s1/fourth" {
		t.Errorf("cut off, after a stop in order: %s", got)
	}
}

// TestKillWhileNotesAreRead leaves the notes where they were: the next one writes down none
// of them twice.
func TestKillWhileNotesAreRead(t *testing.T) {
	r := newRig(t, Options{})
	e := begun("s1", "x")
	r.Begin(&e)
	path := filepath.Join(r.dir, UnderwayName)
	notes, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r.crash()
	r.up()
	r.crash()
	if err := os.WriteFile(path, notes, 0o600); err != nil {
		t.Fatal(err)
	}
	r.up()
	if got := r.cutOffCalls(); got != "s1/x" {
		t.Errorf("cut off: %s", got)
	}
}

func TestDamagedNotesAreLeftOut(t *testing.T) {
	r := newRig(t, Options{})
	for i := range 4 {
		e := begun("s1", fmt.Sprint("x", i))
		r.Begin(&e)
	}
	path := filepath.Join(r.dir, UnderwayName)
	notes, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r.crash()
	notes[0] = 7
	notes[noteSize+noteHead+3] ^= 1
	if err := os.WriteFile(path, notes[:3*noteSize+30], 0o600); err != nil {
		t.Fatal(err)
	}
	r.up()
	if got := r.cutOffCalls(); got != "s1/x2" {
		t.Errorf("cut off: %s", got)
	}
}

// TestNotesOfRuns checks that a call of a run is one of that run after a kill, and that
// the note of a call without a run is as it was before there were runs.
func TestNotesOfRuns(t *testing.T) {
	r := newRig(t, Options{})
	of := begun("s1", strings.Repeat("n", 200))
	of.Run = "run_" + strings.Repeat("1", 60)
	r.Begin(&of)
	plain := begun("s1", "plain")
	r.Begin(&plain)
	notes, err := os.ReadFile(filepath.Join(r.dir, UnderwayName))
	if err != nil {
		t.Fatal(err)
	}
	if note := string(notes[noteSize+noteHead:]); notes[noteSize] != 1 || !strings.HasPrefix(note, "\x03\x00ada\x02\x00s1\x05\x00files") {
		t.Errorf("the note of a call without a run: %q", note)
	}
	r.crash()
	r.up()
	if all := r.list(store.CallFilter{Run: of.Run}); len(all) != 1 || all[0].Run != of.Run || all[0].Error != cutOff {
		t.Errorf("calls of the run: %+v", all)
	}
	if all := r.list(store.CallFilter{}); len(all) != 2 {
		t.Errorf("calls: %+v", all)
	}
}

// TestManyUnderWay has more calls at once than are noted, and ends some after Close.
func TestManyUnderWay(t *testing.T) {
	r := newRig(t, Options{})
	var mu sync.Mutex
	notes := make(map[Note]int)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range maxNotes / 2 {
				e := begun("s1", fmt.Sprint(i))
				n := r.Begin(&e)
				mu.Lock()
				notes[n]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(notes) != maxNotes+1 || notes[0] != maxNotes {
		t.Errorf("%d are noted, %d are not", len(notes)-1, notes[0])
	}
	j := r.Journal
	ended := 0
	for n := range notes {
		if ended++; ended == len(notes)/2 {
			r.down()
		}
		j.End(n)
	}
	if e := begun("s1", "late"); j.Begin(&e) != 0 || j.underway.f != nil {
		t.Error("it notes calls after it was closed")
	}
	r.up()
}

func BenchmarkNote(b *testing.B) {
	r := newRig(b, Options{})
	e := begun("ses_0123456789ab", "read_file")
	b.ReportAllocs()
	for b.Loop() {
		r.End(r.Begin(&e))
	}
}
