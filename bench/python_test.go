package main

import "testing"

// TestPython runs every row about trainers as small as it goes.
func TestPython(t *testing.T) {
	need(t, needPython(t.Context(), settings{}))
	rep, cases := measured(t, tineBinary(t), "--only", pythonGroup, "--max-calls", "10", "--sessions", "3")
	for _, r := range rep.Readings {
		if r.P50 <= 0 {
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
}
