package main

import "testing"

func TestSelectAgents(t *testing.T) {
	for _, tc := range []struct {
		only []string
		want int
	}{{nil, 4}, {[]string{"agents"}, 4}, {[]string{"agents/c*"}, 2}, {[]string{"node"}, 0}} {
		if got := selectTrials(agentTrials(), tc.only); len(got) != tc.want {
			t.Errorf("%v selects %d rows, want %d", tc.only, len(got), tc.want)
		}
	}
}

// TestAgents runs every row about agents as small as it goes.
func TestAgents(t *testing.T) {
	need(t, needShell(t.Context(), settings{}))
	rep, cases := measured(t, tineBinary(t), "--only", agentGroup, "--max-calls", "3", "--callers", "2", "--sessions", "3")
	for _, r := range rep.Readings {
		switch {
		case r.Row == "agents/crowd" && (r.Total <= 0 || r.Sessions != 3), r.Row != "agents/crowd" && r.P50 <= 0:
			t.Errorf("%+v", r)
		}
	}
	for row, want := range map[string]int{"rate": 2, "start": 2, "crowd": 2, "call": 2} {
		if got := cases[agentGroup+"/"+row]; got != want {
			t.Errorf("%s has %d cases, want %d", row, got, want)
		}
	}
	for _, a := range rep.Aims {
		if !a.Judged {
			t.Errorf("not judged: %+v", a)
		}
	}
	if len(rep.Aims) != 2 {
		t.Errorf("there are the aims %+v", rep.Aims)
	}
}
