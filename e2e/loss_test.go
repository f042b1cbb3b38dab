//go:build unix

package e2e

import (
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// damagedBy holds that a session is damaged by one server alone.
func damagedBy(t testing.TB, c *client.Client, session, server, kept string) {
	t.Helper()
	s, err := c.Session(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Damaged) != 1 || s.Damaged[0].Server != server || s.Damaged[0].Kept != kept || s.Damaged[0].Why == "" {
		t.Errorf("session %s is damaged by %+v, want server %s, kept %s", session, s.Damaged, server, kept)
	}
}

// isMarked waits until a session is marked as damaged.
func isMarked(t testing.TB, c *client.Client, session string) {
	t.Helper()
	if err := eventually(func() error {
		s, err := c.Session(t.Context(), session)
		if err == nil && len(s.Damaged) == 0 {
			err = errors.New("its death was not seen")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// deadSnapshot makes a snapshot of a session whose server has died, before any call
// was told.
func deadSnapshot(t testing.TB, c *client.Client, session string) string {
	t.Helper()
	isMarked(t, c, session)
	snap, err := c.MakeSnapshot(t.Context(), session, api.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return snap.ID
}

// hearsLost holds that the next call to a server says that its memory is lost.
func hearsLost(t testing.TB, c *client.Client, session, server string) {
	t.Helper()
	_, err := use(t.Context(), c, session, server+"__remember", object{"key": "late", "value": "x"})
	if e := kindOf(err); e == nil || e.Kind != api.KindLost || e.Server != server || !strings.Contains(err.Error(), "lost") {
		t.Errorf("the first call after the death: %v (%+v), want kind lost of server %s", err, e, server)
	}
}

// TestProgramKilledBetweenCalls kills a program that remembers in memory alone,
// beside a gateway that runs and beside none: the next call hears of it, once, and
// the session is marked until it is rewound to before.
func TestProgramKilledBetweenCalls(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n"+
		yamlServer("count", badServer, nil, "fork: fresh")+
		yamlServer("clock", badServer, nil, "state: none")+
		yamlState(t, "noted"))
	c := g.client(t)
	noted := programShelf("noted")
	remember := func(session, server string) int {
		t.Helper()
		text, err := use(t.Context(), c, session, server+"__remember", object{"key": "who", "value": session})
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	kill := func(pid int) {
		t.Helper()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	live, left := openSession(t, c, api.NewSession{}).ID, openSession(t, c, api.NewSession{}).ID
	before, err := c.MakeSnapshot(t.Context(), live, api.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	pid, gone := remember(live, "count"), remember(left, "count")
	kill(remember(live, "clock"))
	kill(pid)
	dead := deadSnapshot(t, c, live)
	hearsLost(t, c, live, "count")
	remember(live, "count")
	opened := openSession(t, c, api.NewSession{From: dead}).ID
	hearsLost(t, c, opened, "count")
	remember(opened, "count")
	damagedBy(t, c, opened, "count", api.KeptNothing)
	line, err := g.tine(t.Context(), "session", "export", opened)
	if err != nil || !strings.Contains(line, `"type":"damage"`) {
		t.Errorf("the trajectory of a session from a snapshot has no line of it: %v\n%s", err, line)
	}
	remember(live, "clock")
	damagedBy(t, c, live, "count", api.KeptNothing)
	out, err := g.tine(t.Context(), "session", "export", live)
	if err != nil || !strings.Contains(out, `"type":"damage"`) || !strings.Contains(out, `"kept":"nothing"`) {
		t.Errorf("the trajectory has no line of it: %v\n%s", err, out)
	}
	for _, command := range []string{"show " + live, "list"} {
		out, err := g.tine(t.Context(), append([]string{"session"}, strings.Fields(command)...)...)
		if err != nil || !strings.Contains(strings.ToLower(out), "damaged") || !strings.Contains(out, `server "count"`) {
			t.Errorf("tine session %s does not show it: %v\n%s", command, err, out)
		}
	}
	damagedBy(t, c, fork(t, c, live, 1)[0].ID, "count", api.KeptNothing)
	if _, err := c.Rewind(t.Context(), live, api.RewindRequest{Snapshot: before.ID}); err != nil {
		t.Fatal(err)
	}
	if s, err := c.Session(t.Context(), live); err != nil || len(s.Damaged) > 0 {
		t.Errorf("after a rewind to before: %+v, %v", s, err)
	}

	// What has files goes on with them.
	noted.mustPut(t, c, live, "a", "kept")
	text, err := use(t.Context(), c, live, "noted__pid", object{})
	if err != nil {
		t.Fatal(err)
	}
	own, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	kill(own)
	isMarked(t, c, live)
	noted.mustHold(t, c, live, map[string]string{"a": "kept"})
	damagedBy(t, c, live, "noted", api.KeptFiles)

	// One that dies while no gateway runs is as dead.
	g.kill()
	kill(gone)
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c = g.client(t)
	hearsLost(t, c, left, "count")
	remember(left, "count")
	damagedBy(t, c, left, "count", api.KeptNothing)

	// A gateway that is stopped in order says what it ended, and fails no call.
	other := openSession(t, c, api.NewSession{}).ID
	remember(other, "count")
	if _, err := g.stop(); err != nil {
		t.Fatal(err)
	}
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c = g.client(t)
	remember(other, "count")
	damagedBy(t, c, other, "count", api.KeptNothing)
}
