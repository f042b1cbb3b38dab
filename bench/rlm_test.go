package main

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestSelectRLM(t *testing.T) {
	for _, tc := range []struct {
		only []string
		want int
	}{
		{nil, 5},
		{[]string{"rlm"}, 5},
		{[]string{"rlm/exec*"}, 2},
		{[]string{"sandbox", "sessions/open"}, 0},
	} {
		if got := selectTrials(rlmTrials(), tc.only); len(got) != tc.want {
			t.Errorf("%v selects %d rows, want %d", tc.only, len(got), tc.want)
		}
	}
}

// TestContest holds that each side is compared with the floor and with the peer, round by
// round, and that only kernels of ours are judged.
func TestContest(t *testing.T) {
	made := func(name, server string, times ...time.Duration) *side {
		round := 0
		return &side{&series{name: name, server: server}, func() ([]time.Duration, error) {
			round++
			return []time.Duration{times[round-1] * time.Millisecond}, nil
		}}
	}
	for _, peered := range []bool{true, false} {
		turns := 0
		c := &contest{
			floor: made("bare", "", 1, 2), ours: []*side{made("ours", "rlm", 3, 5)}, shows: showsExec,
			before: func() error { turns++; return nil },
		}
		if peered {
			c.peer = made("jupyter", "", 30, 100)
		}
		got, err := c.rounds(2)
		if err != nil || len(got) != len(c.all()) || turns != 2*len(c.all()) {
			t.Fatalf("%d readings after %d turns, %v", len(got), turns, err)
		}
		if r := got[1]; r.Over != 2500*time.Microsecond || r.Ratio.P50 != 2.75 || r.shows != showsExec {
			t.Errorf("ours: %+v", r)
		}
		for i, want := range []struct {
			got    float64
			judged bool
			met    bool
		}{{2.5, true, false}, {0.075, peered, peered}} {
			if a := rlmTrials()[0].limits[i].judge("row", got); a.Judged != want.judged || a.Met != want.met || a.Judged && (a.Got < want.got*0.999 || a.Got > want.got*1.001) {
				t.Errorf("%+v, want %+v", a, want)
			}
		}
	}
}

// TestContestOrder holds that each side comes first, and after each other side, equally often.
func TestContestOrder(t *testing.T) {
	var order []string
	made := func(name string) *side {
		return &side{&series{name: name}, func() ([]time.Duration, error) {
			order = append(order, name)
			return []time.Duration{1}, nil
		}}
	}
	c := &contest{floor: made("a"), ours: []*side{made("b"), made("c")}}
	if _, err := c.rounds(6); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for i, name := range order {
		if i%3 == 0 {
			seen[name]++
		} else {
			seen[order[i-1]+name]++
		}
	}
	for _, what := range []string{"a", "b", "c", "ab", "ac", "ba", "bc", "ca", "cb"} {
		if seen[what] != 2 {
			t.Errorf("%s: %d times in %v", what, seen[what], order)
		}
	}
}

// TestGrown holds that memory that did not grow is judged, and met.
func TestGrown(t *testing.T) {
	for _, l := range rlmTrials()[1].limits[:1] {
		if a := l.judge("row", []reading{{Grown: 50e6}, {Server: "rlm", Own: 8e6, Grown: -1e6}}); !a.Judged || !a.Met {
			t.Errorf("it became smaller: %+v", a)
		}
		if a := l.judge("row", []reading{{Server: "rlm", Own: 29e6, Grown: 20e6}}); !a.Judged || a.Met || a.Got != 20 {
			t.Errorf("it grew: %+v", a)
		}
	}
}

// TestRLM runs every row about kernels as small as it goes, and without the peer.
func TestRLM(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are sandboxes on Linux")
	}
	tine := tineBinary(t)
	need(t, needRLM(t.Context(), settings{Tine: tine}))
	t.Setenv("TINE_TEST_TOOLS", t.TempDir())
	rep, cases := measured(t, tine, "--only", rlmGroup, "--max-calls", "20", "--sessions", "2", "--workspace", "1")
	for _, r := range rep.Readings {
		if r.P50 <= 0 && r.Total <= 0 || r.Total > 0 && (r.PSS <= 0 || r.Own <= 0) {
			t.Errorf("%+v", r)
		}
	}
	for row, want := range map[string]int{rowExec: 3, rowExecs: 3, rowLoad: 3, rowStart: 5, rowCrowd: 3} {
		if got := cases[rlmGroup+"/"+row]; got != want {
			t.Errorf("%s has %d cases, want %d", row, got, want)
		}
	}
	for _, a := range rep.Aims {
		if against := strings.Contains(a.Name, "jupyter"); a.Judged == against {
			t.Errorf("without jupyter: %+v", a)
		}
	}
	if notes := strings.Join(rep.Notes, "\n"); strings.Count(notes, "run: make peers") != 1 {
		t.Errorf("it is not said once what is missing: %s", notes)
	}
}
