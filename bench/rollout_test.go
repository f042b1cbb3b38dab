package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestSelectRollouts(t *testing.T) {
	for _, tc := range []struct {
		only []string
		want int
	}{
		{nil, 4},
		{[]string{"rollouts"}, 4},
		{[]string{"rollouts/fork*"}, 2},
		{[]string{"sessions", "sessions/open"}, 0},
	} {
		if got := selectTrials(rolloutTrials(), tc.only); len(got) != tc.want {
			t.Errorf("%v selects %d rows, want %d", tc.only, len(got), tc.want)
		}
	}
}

// TestRunnable holds that rows for which something is missing are left out, and
// that it is said once.
func TestRunnable(t *testing.T) {
	missing := func(context.Context, settings) error { return errors.New("it is not there") }
	there := func(context.Context, settings) error { return nil }
	rows := []*trial{{Name: "a"}, {Group: "g", Name: "b", needs: missing}, {Group: "g", Name: "c", needs: there}, {Group: "g", Name: "d", needs: missing}}
	kept, notes := runnable(t.Context(), settings{}, rows)
	if len(kept) != 2 || kept[0].Name != "a" || kept[1].Name != "c" {
		t.Errorf("kept %+v", kept)
	}
	if want := []string{"without g/b, g/d: it is not there"}; !slices.Equal(notes, want) {
		t.Errorf("notes %q, want %q", notes, want)
	}
}

// TestNoEngine holds that the group is left out, and says why, where no engine
// answers.
func TestNoEngine(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("TINE_TEST_DOCKER", filepath.Join(t.TempDir(), "nobody.sock"))
	self, err := os.Executable() // it is not run
	if err != nil {
		t.Fatal(err)
	}
	var out, progress bytes.Buffer
	code := cli(t.Context(), []string{"--tine", self, "--only", "rollouts/open,rollouts/fork"}, &out, &progress)
	if said := progress.String(); code != 1 || !strings.Contains(said, "rollouts/open, rollouts/fork: no container engine answers") {
		t.Errorf("alone: exit code %d, said %q", code, said)
	}
	progress.Reset()
	code = cli(t.Context(), []string{"--tine", self, "--only", "rollouts/open,stdio/direct", "--rounds", "1", "--duration", "20ms", "--callers", "1"}, &out, &progress)
	if code != 0 || !strings.Contains(out.String(), "without rollouts/open: no container engine answers") {
		t.Errorf("beside others: exit code %d, said %q\n%s", code, progress.String(), out.String())
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestProcessGone(t *testing.T) {
	if processGone(strconv.Itoa(os.Getpid())) || processGone("no number") {
		t.Error("we are here, and so is what has no number")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if !processGone(strconv.Itoa(cmd.Process.Pid)) {
		t.Errorf("process %d has ended", cmd.Process.Pid)
	}
}

// TestRollouts runs the rows with containers as small as they go.
func TestRollouts(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the engine with the images is on Linux")
	}
	e, err := dialEngine(t.Context())
	need(t, err)
	defer e.cli.Close()
	rep, cases := measured(t, tineBinary(t), "--only", "rollouts/open,rollouts/fork,rollouts/provision", "--sessions", "3")
	for _, r := range rep.Readings {
		if r.P50 <= 0 {
			t.Errorf("%+v", r)
		}
	}
	// Volumes can be copied by hand only by whoever may read them.
	forks := map[bool]int{true: 4, false: 2}[os.Geteuid() == 0]
	for row, want := range map[string]int{"open": 6, "fork": forks, "provision": 2} {
		if got := cases[rolloutGroup+"/"+row]; got != want {
			t.Errorf("%s has %d cases, want %d: %v", row, got, want, rep.Notes)
		}
	}
	if len(rep.Aims) != 3 {
		t.Errorf("%d aims", len(rep.Aims))
	}
	if found, err := e.sweep(true); err != nil || len(found) > 0 {
		t.Errorf("left in the engine: %v, %v", found, err)
	}
}
