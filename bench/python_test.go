package main

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
)

// TestPython runs every row about trainers as small as it goes.
func TestPython(t *testing.T) {
	tine := os.Getenv("TINE_BIN")
	err := needPython(t.Context(), settings{})
	switch {
	case tine == "":
		t.Skip("TINE_BIN names no gateway; run: make unit")
	case err != nil && os.Getenv("CI") != "":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	var out, progress bytes.Buffer
	code := cli(t.Context(), []string{"--tine", tine, "--only", "python", "--json", "--rounds", "1", "--max-calls", "10", "--sessions", "3"}, &out, &progress)
	t.Log(progress.String())
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	var rep report
	if err := json.Unmarshal(out.Bytes(), &rep); err != nil {
		t.Fatal(err)
	}
	cases := map[string]int{}
	for _, r := range rep.Readings {
		cases[r.Row]++
		if r.Failure != "" || r.P50 <= 0 {
			t.Errorf("%+v", r)
		}
	}
	if cases["python/call"] != 4 || cases["python/worlds"] != 2 {
		t.Errorf("the cases are %v", cases)
	}
	for _, a := range rep.Aims {
		if !a.Judged {
			t.Errorf("not judged: %+v", a)
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
