package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestSelectSandboxes(t *testing.T) {
	for _, tc := range []struct {
		only []string
		want int
	}{
		{nil, 9},
		{[]string{"sandbox"}, 9},
		{[]string{"sandbox/p*"}, 2},
		{[]string{"rollouts", "sessions/fork"}, 0},
	} {
		if got := selectTrials(sandboxTrials(), tc.only); len(got) != tc.want {
			t.Errorf("%v selects %d rows, want %d", tc.only, len(got), tc.want)
		}
	}
}

// TestSandboxAims holds that each aim is about the cases that it names.
func TestSandboxAims(t *testing.T) {
	forks := []reading{
		{Server: kindNode, P50: time.Second},
		{Server: kindNode, P50: 400 * time.Millisecond, Ratio: timeRatios{P50: 0.4}},
		{Server: kindGo, P50: 3 * time.Millisecond},
		{Server: kindGo, P50: 60 * time.Millisecond, Ratio: timeRatios{P50: 20}},
		{Server: kindPython, P50: 120 * time.Millisecond, Ratio: timeRatios{P50: 2}},
	}
	rows := map[string][]reading{
		rowFork: forks,
		rowWarm: {{P50: 300 * time.Millisecond}, {P50: 8 * time.Millisecond, Ratio: timeRatios{P50: 0.1}}},
		rowMemory: {
			worked("node, forked", kindNode, holding{pss: 8 * 70e6, files: 8 * 10e6}, 8),
			worked("go, forked", kindGo, holding{pss: 8 * 300e6}, 8),
		},
		rowParked: {{CPU: 2.7}, {Parked: true}},
		rowFill:   {{Room: 11e9}},
	}
	for row, want := range map[string][]struct {
		got         float64
		judged, met bool
	}{
		rowFork:   {{0.4, true, true}, {60, true, true}, {120, true, false}},
		rowWarm:   {{8, true, true}},
		rowSpare:  {{0, false, false}},
		rowMemory: {{(150*60 + 80) / 1e3, true, true}},
		rowParked: {{1e-6, true, true}},
		rowFill:   {{11, true, true}},
	} {
		for _, trial := range sandboxTrials() {
			if trial.Name != row {
				continue
			}
			if len(trial.limits) != len(want) {
				t.Errorf("%s has %d aims", row, len(trial.limits))
				continue
			}
			for i, l := range trial.limits {
				a := l.judge(trial.id(), rows[row])
				if a.Judged != want[i].judged || a.Met != want[i].met || a.Got < want[i].got*0.999 || a.Got > want[i].got*1.001 {
					t.Errorf("%+v, want %+v", a, want[i])
				}
			}
		}
	}
}

// TestShows holds that every kind of row has a column for each of its figures.
func TestShows(t *testing.T) {
	for shows, head := range heads {
		r := reading{shows: shows}
		if got, want := strings.Count(r.cells(), "\t"), strings.Count(head, "\t"); got != want {
			t.Errorf("%q has %d columns, and its cells are %d", head, want+1, got+1)
		}
	}
}

// TestSweepBoxes holds that what a gateway left is ended, and nothing else that
// has got its number since.
func TestSweepBoxes(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are sandboxes on Linux")
	}
	var left [2]*exec.Cmd
	state := t.TempDir()
	for i := range left {
		left[i] = exec.Command("sleep", "60")
		if err := left[i].Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = left[i].Process.Kill(), left[i].Wait() }()
	}
	for i, cmd := range left {
		pid := strconv.Itoa(cmd.Process.Pid)
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		start := strings.Fields(string(stat))[21]
		if i == 1 {
			start += "0" // another one that had the number before
		}
		dir := filepath.Join(state, "instances", "go-"+pid)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		record := `{"sandbox":"tine-of-a-test","pid":` + pid + `,"start":` + start + `}`
		if err := os.WriteFile(filepath.Join(dir, "sandbox.json"), []byte(record), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- left[0].Wait() }()
	if found := sweepBoxes(state); len(found) != 1 || !strings.Contains(found[0], "tine-of-a-test") {
		t.Errorf("found %q", found)
	}
	if err := <-ended; err == nil {
		t.Error("it was not killed")
	}
	if processGone(strconv.Itoa(left[1].Process.Pid)) {
		t.Error("another process was ended")
	}
}

// TestSandboxes runs rows with sandboxes as small as they go.
func TestSandboxes(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are sandboxes on Linux")
	}
	tine := tineBinary(t)
	need(t, needSandbox(t.Context(), settings{Tine: tine}))
	rep, cases := measured(t, tine, "--only", "sandbox/fork,sandbox/pause", "--sessions", "3")
	for _, r := range rep.Readings {
		if r.P50 <= 0 || r.Server == "" {
			t.Errorf("%+v", r)
		}
	}
	for row, want := range map[string]int{"fork": 6, "pause": 3} {
		if got := cases[sandboxGroup+"/"+row]; got != want {
			t.Errorf("%s has %d cases, want %d: %v", row, got, want, rep.Notes)
		}
	}
	if len(rep.Aims) != 3 {
		t.Errorf("%d aims", len(rep.Aims))
	}
}
