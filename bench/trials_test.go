package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSelectTrials(t *testing.T) {
	for _, tc := range []struct {
		only []string
		want int
	}{
		{nil, 6},
		{[]string{"sessions"}, 6},
		{[]string{"sessions/fork*"}, 3},
		{[]string{"*/fork"}, 1},
		{[]string{"*/direct", "stdio"}, 0},
	} {
		if got := selectTrials(allTrials(), tc.only); len(got) != tc.want {
			t.Errorf("%v selects %d rows, want %d", tc.only, len(got), tc.want)
		}
	}
}

func TestLimits(t *testing.T) {
	under := limit{"p50 in ms", 2, true, requestP50}
	same := limit{"p50", 1.2, false, ratioP50}
	for _, tc := range []struct {
		name        string
		limit       limit
		in          []reading
		judged, met bool
	}{
		{"under", under, []reading{{P50: 1900 * time.Microsecond}, {P50: time.Millisecond}}, true, true},
		{"not under", under, []reading{{P50: time.Millisecond}, {P50: 2 * time.Millisecond}}, true, false},
		{"use has no say", under, []reading{{P50: time.Millisecond}, {P50: time.Second, Use: true}}, true, true},
		{"at most", same, []reading{{}, {Ratio: timeRatios{P50: 1.2}}}, true, true},
		{"more", same, []reading{{Ratio: timeRatios{P50: 1.21}}, {Ratio: timeRatios{P50: 1}}}, true, false},
		{"flat out has no say", same, []reading{{Ratio: timeRatios{P50: 3}, Flat: true}}, false, false},
		{"one failed", same, []reading{{Ratio: timeRatios{P50: 1}}, {Failure: "it did"}}, false, false},
		{"nothing", same, nil, false, false},
	} {
		if a := tc.limit.judge("row", tc.in); a.Judged != tc.judged || a.Met != tc.met || !strings.HasPrefix(a.Name, "row ") {
			t.Errorf("%s: %+v", tc.name, a)
		}
	}
}

// TestSeries holds that ratios are made round by round: the second round was
// slow for both.
func TestSeries(t *testing.T) {
	base, other := &series{name: "base"}, &series{name: "other", use: true}
	for _, slow := range []time.Duration{1, 10, 1} {
		for i := range time.Duration(20) {
			base.add(slow * (100 + i))
			other.add(slow * 2 * (100 + i))
		}
		base.endRound()
		other.endRound()
	}
	r := compared([]*series{base, other})
	if r[0].Ratio != (timeRatios{}) || r[0].P50 != 109 || r[0].P95 != 118 || len(r[0].Rounds) != 3 || r[0].Rounds[1].N != 20 {
		t.Errorf("the base: %+v", r[0])
	}
	if r[1].Ratio != (timeRatios{P50: 2, P95: 2, P99: 2}) || !r[1].Use || r[1].Case != "other" {
		t.Errorf("against it: %+v", r[1])
	}
}

func TestMakeTree(t *testing.T) {
	for _, tc := range []struct {
		files int
		bytes int64
	}{{1, 1000}, {1000, 100_003}, {60, 5_000_001}} {
		dir := filepath.Join(t.TempDir(), "tree")
		if err := makeTree(dir, tc.files, tc.bytes); err != nil {
			t.Fatal(err)
		}
		var bytes, largest int64
		err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err == nil {
				bytes, largest = bytes+info.Size(), max(largest, info.Size())
			}
			return err
		})
		n, cerr := countFiles(dir)
		if err = errors.Join(err, cerr); err != nil || n != tc.files || bytes != tc.bytes {
			t.Errorf("%d files of %d bytes, want %d of %d (%v)", n, bytes, tc.files, tc.bytes, err)
		}
		if tc.files > 8 && largest < 2*bytes/int64(n) {
			t.Errorf("%d files are all alike: the largest has %d bytes of %d", n, largest, bytes)
		}
	}
}

func TestRoomFor(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("free space is not looked up here")
	}
	if got, note := roomFor(t.TempDir(), 1); got != 1 || note != "" {
		t.Errorf("a byte: %d, %q", got, note)
	}
	if got, note := roomFor(t.TempDir(), 1<<60); got >= 1<<60 || got%1e6 != 0 || !strings.Contains(note, "free") {
		t.Errorf("more than any disk has: %d, %q", got, note)
	}
}

func TestEach(t *testing.T) {
	var sum atomic.Int64
	if err := each(t.Context(), 100, func(_ context.Context, i int) error { sum.Add(int64(i)); return nil }); err != nil || sum.Load() != 4950 {
		t.Errorf("sum %d, %v", sum.Load(), err)
	}
	broken := errors.New("broken")
	err := each(t.Context(), 100, func(_ context.Context, i int) error {
		if i == 7 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("the failure is not returned: %v", err)
	}
}

// TestPace holds that callers take turns at their pace, and one that is late
// does not wait.
func TestPace(t *testing.T) {
	for _, tc := range []struct {
		takes, want time.Duration
	}{{0, 45 * time.Millisecond}, {20 * time.Millisecond, 105 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			var ids atomic.Uint64
			c := callFunc(func(uint64) error { time.Sleep(tc.takes); return nil })
			l := pace(t.Context(), []caller{c, c}, 10*time.Millisecond, time.Minute, 10, &ids)
			if len(l.latencies) != 10 || l.elapsed != tc.want || l.latencies[0] != tc.takes {
				t.Errorf("%d calls of two callers in %v, want %v", len(l.latencies), l.elapsed, tc.want)
			}
		})
	}
}

// TestCopyAndStart measures what forks of programs are compared with.
func TestCopyAndStart(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no cp to compare with")
	}
	cp, err := exec.LookPath("cp")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	g, err := newRig(settings{Payload: minPayload})
	if err != nil {
		t.Fatal(err)
	}
	s := &stateSize{server: "small", tree: filepath.Join(g.dir, "tree"), files: 9, bare: &series{}}
	if err := makeTree(s.tree, s.files, 1e5); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := g.copyAndStart(t.Context(), cp, s); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.bare.rounds) != 2 || s.bare.rounds[1].P50 <= 0 {
		t.Errorf("rounds: %+v", s.bare.rounds)
	}
	if err := g.close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestSessions runs every row about sessions on the gateway that TINE_BIN names,
// or on one that it builds, as small as they go.
func TestSessions(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what the gateway uses is read from /proc")
	}
	rep, cases := measured(t, tineBinary(t), "--only", "sessions", "--duration", "50ms", "--callers", "2", "--sessions", "12", "--depth", "4", "--workspace", "2")
	for _, r := range rep.Readings {
		if r.Sessions == 0 && (r.P50 <= 0 || r.P95 < r.P50) {
			t.Errorf("%+v", r)
		}
	}
	for row, want := range map[string]int{"open": 4, "fork": 8, "fork-many": 2, "fork-process": 4, "memory": 2, "latency": 4} {
		if got := cases[sessionGroup+"/"+row]; got != want {
			t.Errorf("%s has %d cases, want %d", row, got, want)
		}
	}
	if len(rep.Aims) != 8 || len(rep.Lines) != 0 {
		t.Errorf("%d aims and %d rows before the echo server", len(rep.Aims), len(rep.Lines))
	}
}
