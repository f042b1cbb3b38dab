package session_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
)

// TestNetwork holds that connections are in the journal as their session's and
// its owner's, also when the session is gone, and in the trajectory between the
// calls and as none of them.
func TestNetwork(t *testing.T) {
	w := recording(t, kept)
	ctx := t.Context()
	s := w.opened(session.OpenOptions{Owner: session.Owner{Name: "ada"}})
	conn := func(host string, allowed bool) {
		w.Network(ctx, driver.Network{
			Server: "own", Session: s.ID, Host: host, Port: 443, Allowed: allowed, Sent: 1, Received: 2, Began: time.Now(), Took: time.Second,
		})
	}
	conn("first.example", true)
	set(t, s, "own", "it", "r1")
	conn("evil.example", false)
	snap := w.frozen(s, "")
	conn("undone.example", true)
	set(t, s, "own", "it", "r2")
	w.rewound(s, snap.ID)
	if err := w.CloseSession(ctx, s); err != nil {
		t.Fatal(err)
	}
	conn("late.example", true)
	w.Network(ctx, driver.Network{Server: "own", Host: "shared.example", Port: 80, Allowed: true})
	w.Network(ctx, driver.Network{Server: "nobody's", Session: s.ID, Host: "nowhere.example", Port: 80})

	var told []string
	err := w.Trajectory(ctx, s.ID, func(st api.Step) error {
		line := fmt.Sprint(st.Type, st.Step)
		if st.Type == "network" {
			line += " " + st.Name + " " + st.Outcome
			if string(st.Arguments) != `{"sent":1,"received":2}` || st.Method != driver.MethodNetwork || st.Server != "own" || st.Undone || st.ID == "" {
				t.Errorf("%+v with %s", st, st.Arguments)
			}
		}
		told = append(told, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := "session0|network0 first.example:443 ok|call1|network1 evil.example:443 refused|snapshot1|network1 undone.example:443 ok|call2|rewind2"
	if got := strings.Join(told, "|"); !strings.HasPrefix(got, want) || !strings.Contains(got, "network2 late.example:443 ok") {
		t.Errorf("told as\n\t%s, want\n\t%s...", got, want)
	}
	list, err := w.journal.List(ctx, store.CallFilter{Server: "own"})
	if err != nil {
		t.Fatal(err)
	}
	hosts := 0
	for _, e := range list {
		if e.Method != driver.MethodNetwork {
			continue
		}
		hosts++
		if owner := map[bool]string{true: "ada"}[e.Session != ""]; e.Principal != owner {
			t.Errorf("%s is of %q", e.Name, e.Principal)
		}
	}
	if hosts != 5 {
		t.Errorf("%d connections are in the journal", hosts)
	}
}

// Connections of a session's own server are recorded as its definition says, also after
// it was taken out and after the session's end.
func TestNetworkOfASessionsOwn(t *testing.T) {
	w := recording(t, strings.Replace(kept, "servers:", "journal: {mode: \"off\"}\nservers:", 1))
	ctx := t.Context()
	yaml := kept
	s := w.agent(agentID, listed(t, yaml, scratch))
	conn := func(host string) {
		w.Network(ctx, driver.Network{Server: "scratch", Session: s.ID, Host: host, Port: 443, Allowed: true, Began: time.Now()})
	}
	set(t, s, "scratch", "it", "1")
	conn("first.example")
	w.adapted(s, listed(t, yaml))
	conn("taken.example")
	if err := w.CloseSession(ctx, s); err != nil {
		t.Fatal(err)
	}
	conn("late.example")
	list, err := w.journal.List(ctx, store.CallFilter{Server: "scratch"})
	if err != nil {
		t.Fatal(err)
	}
	var hosts []string
	for _, e := range list {
		if e.Method == driver.MethodNetwork {
			hosts = append(hosts, e.Name)
		}
	}
	slices.Sort(hosts)
	if got := strings.Join(hosts, " "); got != "first.example:443 late.example:443 taken.example:443" {
		t.Errorf("in the journal are %q", got)
	}
}
