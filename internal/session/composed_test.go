package session_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/testkit"
)

// Servers of a session's own survive what the session survives, and what the config
// becomes.
func TestServersOfASessionsOwn(t *testing.T) {
	w := newWorld(t, kept)
	s := w.agent(agentID, listed(t, kept, "mem", scratch))
	set(t, s, "scratch", "it", "1")
	set(t, s, "mem", "it", "1")
	snap := w.frozen(s, "before")
	wantRuns(t, w, "the session", s, "scratch", "scratch")
	other := w.agent("ses_ba9876543210", listed(t, kept, scratch2))
	wantRuns(t, w, "another with one of the same name", other, "scratch", "scratch2")
	for _, yaml := range []string{
		"servers:\n  all: {command: all, scope: shared}\n",
		kept + "  scratch: {command: theirs, timeout: 7s}\n",
		kept + "  scratch: {command: theirs, enabled: false}\n",
	} {
		w.apply(yaml)
		for _, again := range []func(*world, string){func(*world, string) {}, (*world).reopen, (*world).crash} {
			again(w, yaml)
			s, other = w.Get(agentID), w.Get("ses_ba9876543210")
			wantDump(t, "the session", s, "scratch", `{"it":"1"}`)
			wantRuns(t, w, "the session", s, "scratch", "scratch")
			wantRuns(t, w, "the other", other, "scratch", "scratch2")
			wantDump(t, "its fork", w.fork(s, 1)[0], "scratch", `{"it":"1"}`)
			wantDump(t, "one from its snapshot", w.opened(session.OpenOptions{From: snap.ID}), "scratch", `{"it":"1"}`)
			if e := s.Catalog().Entry("scratch"); e == nil || e.Timeout.Seconds() == 7 || e.Override != nil {
				t.Errorf("it has what the config says of another: %+v", e)
			}
		}
	}
	// Those of the config don't count it as theirs.
	w.apply(kept + "  scratch: {command: theirs}\n")
	if n := len(w.Upstreams("scratch")); n != 0 {
		t.Errorf("%d holds on the server of the config", n)
	}
	if n := len(w.UpstreamsOf(s.Catalog().Entry("scratch"))); n != 1 {
		t.Errorf("%d holds on the session's own", n)
	}
	if a, b := s.Catalog().Entry("scratch").Governor, other.Catalog().Entry("scratch").Governor; a == b || a == w.Catalog().Entry("scratch").Governor {
		t.Error("two servers of one name share their limits")
	}
	if a, b := s.Catalog().Entry("scratch").Governor, w.fork(s, 1)[0].Catalog().Entry("scratch").Governor; a == b {
		t.Error("a fork shares the limits")
	}
	for _, snap := range w.Snapshots() {
		if err := w.DeleteSnapshot(t.Context(), snap.ID); err != nil {
			t.Error(err)
		}
	}
	for _, s := range w.Sessions() {
		w.CloseSession(t.Context(), s)
	}
	wantLeft(t, w)
	if left, _ := filepath.Glob(filepath.Join(w.dir, "catalogs", "*")); len(left) != 0 {
		t.Errorf("the servers of sessions that are over are kept: %q", left)
	}
	for _, one := range w.Servers() {
		if one.Inline {
			t.Errorf("server %q is known after its session", one.ID)
		}
	}
}

func TestSecretsAreToldBeforeAStart(t *testing.T) {
	w := newWorld(t, kept)
	l := listed(t, kept, `scratch={"command": "scratch", "eager": true, "env": {"KEY": "not-of-a-known-form"}}`)
	told := 0
	knows := func() {
		told++
		if w.m.started("scratch") > 0 {
			t.Error("it was started before its secrets were known")
		}
		if !slices.ContainsFunc(w.Servers(), func(s config.Server) bool { return slices.Contains(s.Secrets(), "not-of-a-known-form") }) {
			t.Error("its secrets are not among those of the servers")
		}
	}
	s, _, err := w.OpenAs(t.Context(), session.OpenOptions{ID: agentID, List: &l, Secrets: knows})
	if err != nil || told != 1 {
		t.Fatalf("told %d times: %v", told, err)
	}
	w.CloseSession(t.Context(), s)
	s = w.agent("ses_ba9876543210", catalog.List{})
	before := w.m.started("scratch")
	if _, err := w.Adapt(t.Context(), s, session.AdaptOptions{List: l, Secrets: func() {
		told++
		if w.m.started("scratch") > before {
			t.Error("it was started before its secrets were known")
		}
	}}); err != nil || told != 2 {
		t.Fatalf("told %d times: %v", told, err)
	}
	testkit.Eventually(t, "an eager one runs", func() bool { return w.m.started("scratch") > before })
}
