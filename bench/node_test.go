package main

import "testing"

// TestNode runs every row about the library in Go as small as it goes.
func TestNode(t *testing.T) {
	need(t, needNode(t.Context(), settings{}))
	rep, cases := measured(t, tineBinary(t), "--only", nodeGroup, "--max-calls", "10", "--callers", "2")
	for _, r := range rep.Readings {
		if r.P50 <= 0 {
			t.Errorf("%+v", r)
		}
	}
	if cases["node/call"] != 6 || cases["node/proxy"] != 6 {
		t.Errorf("the cases are %v", cases)
	}
	for _, a := range rep.Aims {
		if !a.Judged {
			t.Errorf("not judged: %+v", a)
		}
	}
}
