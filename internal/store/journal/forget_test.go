package journal

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestForget(t *testing.T) {
	wanted := new(set)
	for _, s := range []string{"ses_a", "ses_b", "ses_c"} {
		wanted.put(s, true)
	}
	r := newRig(t, Options{SegmentSize: minSegmentSize, MaxSize: 2 * minSegmentSize, Wanted: wanted.has})
	n := 0
	fill := func() {
		for range 40 {
			for _, s := range []string{"ses_a", "ses_b", "ses_c"} {
				r.call(s, n, 100)
			}
			n++
		}
		r.settle()
	}
	fill()
	whole := r.Stats().Kept
	wanted.put("ses_b", false)
	r.Forget("ses_b", "ses_b", "ses_never", "../ses_a", "")
	if names := r.keptFiles(); !slices.Equal(names, []string{"ses_a", "ses_c"}) {
		t.Errorf("kept %v", names)
	}
	if s := r.Stats().Kept; s >= whole || s == 0 {
		t.Errorf("%d bytes of %d", s, whole)
	}
	if told := r.story("ses_b", -1); len(told) == 0 || told[0] == 0 {
		t.Errorf("%d calls are left from %v on", len(told), told[:min(1, len(told))])
	}
	fill()
	sameNumbers(t, "ses_a", r.story("ses_a", -1), 0, n-1)
	if told := r.story("ses_b", -1); len(told) == 0 || told[0] < 40 {
		t.Errorf("%d calls are left", len(told))
	}

	// Sessions that ended while the gateway was down are forgotten at the next start, but
	// not without Wanted.
	r.opt.Wanted = nil
	r.again()
	sameNumbers(t, "ses_a, with nil", r.story("ses_a", -1), 0, n-1)
	wanted.put("ses_c", false)
	r.opt.Wanted = wanted.has
	r.again()
	testkit.Eventually(t, "what was kept for the other session is removed", func() bool { return slices.Equal(r.keptFiles(), []string{"ses_a"}) })
	sameNumbers(t, "ses_a", r.story("ses_a", -1), 0, n-1)
}

// TestForeignFilesInTheArchive are left alone and not counted.
func TestForeignFilesInTheArchive(t *testing.T) {
	r := newRig(t, Options{SegmentSize: minSegmentSize, MaxSize: 2 * minSegmentSize, Wanted: only()})
	r.down()
	dir := filepath.Join(r.dir, keptFolder)
	if err := os.MkdirAll(filepath.Join(dir, "ses_d"+suffix), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"notes.txt", "Ses_A" + suffix, suffix, "ses_a", "ses_a" + suffix + "~"} {
		r.write(filepath.Join(dir, name), []byte("mine"))
	}
	r.up()
	r.sweep()
	if s := r.Stats(); s.Kept != 0 || len(r.keptFiles()) != 6 {
		t.Errorf("%+v, %v", s, r.keptFiles())
	}
}

func TestOnlyTheOwnerReadsTheArchive(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no modes there")
	}
	r := newRig(t, Options{SegmentSize: minSegmentSize, MaxSize: 2 * minSegmentSize, Wanted: only("ses_1")})
	r.add(100)
	r.settle()
	for path, want := range map[string]os.FileMode{r.kept.dir: 0o700, r.kept.path("ses_1"): 0o600} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, st, err)
		}
	}
}

// TestOldCallsOfWanted has them go by their age.
func TestOldCallsOfWanted(t *testing.T) {
	r := newRig(t, Options{MaxAge: time.Hour, Wanted: only("ses_a")})
	for n := range 10 {
		r.call("ses_a", n, 10)
		r.call("ses_b", n, 10)
	}
	r.wholeIndex(r.listed())
	later := time.Now().Add(2 * time.Hour)
	r.down()
	r.now = func() time.Time { return later }
	r.up()
	testkit.Eventually(t, "calls are carried over", func() bool { return len(r.files()) == 1 && r.Stats().Kept > 0 })
	r.wholeIndex(nil)
	sameNumbers(t, "ses_a", r.story("ses_a", -1), 0, 9)
	sameNumbers(t, "ses_b", r.story("ses_b", -1), 0, -1)
	if all := r.list(store.CallFilter{}); len(all) != 0 {
		t.Errorf("%d calls are listed", len(all))
	}
}
