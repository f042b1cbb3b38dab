package session_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

const forgetful = `
servers:
  plain: {command: plain}
  noted: {command: noted, args: ['${state.data}'], state: [data]}
  clock: {command: clock, state: none}
  mem: {builtin: memory}
  all: {command: all, scope: shared}
`

// callIn is call with the session named, as the gateway does it.
func callIn(t *testing.T, s *session.Session, server, tool string) string {
	t.Helper()
	ctx, leave, err := s.Enter(context.Background(), server, tool)
	if err != nil {
		return failure(err)
	}
	defer leave()
	up, _, err := s.Upstream(server)
	if err != nil {
		return failure(err)
	}
	p, _ := wire.ScanParams(wire.MethodCallTool, []byte(`{"name":"`+tool+`"}`))
	res, err := up.Call(ctx, &upstream.Request{Method: wire.MethodCallTool, Params: p, Name: tool, Session: s.ID, Client: &upstream.Client{Key: "k"}})
	if err != nil {
		return failure(err)
	}
	return string(res.Result) + string(res.Error)
}

// A server that died is told once and marks its session, as far as it had
// something to lose.
func TestADeadServer(t *testing.T) {
	for server, want := range map[string]string{
		"plain": "nothing", "noted": "files", "clock": "", "mem": "",
	} {
		t.Run(server, func(t *testing.T) {
			w := newWorld(t, forgetful)
			s := w.opened(session.OpenOptions{})
			testkit.Has(t, "the first call", callIn(t, s, server, "x"), `{"pid":`)
			w.m.one(server).kill()
			next := callIn(t, s, server, "x")
			if want == "nothing" {
				testkit.Has(t, "the call after the death", next, "lost: ", `server "`+server+`"`, "what it had in memory is lost")
				next = callIn(t, s, server, "x")
			}
			testkit.Has(t, "the next call", next, `{"pid":`)
			all := s.Damaged()
			if want == "" {
				wantDamage(t, "the session", all, "")
				return
			}
			if len(all) != 1 || all[0].Server != server || all[0].Kept != want || all[0].Why == "" {
				t.Errorf("the session is damaged by %+v", all)
			}
			testkit.Has(t, "the trajectory", w.lines(s), "damage "+server+" "+want+" ")
			wantDamage(t, "a fork", w.opened(session.OpenOptions{}).Damaged(), "")
		})
	}
	t.Run("never called", func(t *testing.T) {
		w := newWorld(t, forgetful)
		s := w.opened(session.OpenOptions{Eager: true})
		w.runs("clock mem noted plain")
		w.m.one("plain").kill()
		testkit.Has(t, "the first call", callIn(t, s, "plain", "x"), `{"pid":`)
		wantDamage(t, "the session", s.Damaged(), "")
	})
	t.Run("a fork before a call was told", func(t *testing.T) {
		w := newWorld(t, strings.Replace(forgetful, "command: plain", "command: plain, fork: fresh", 1))
		s := w.opened(session.OpenOptions{})
		callIn(t, s, "plain", "x")
		w.m.one("plain").kill()
		testkit.Eventually(t, "the session is marked", func() bool { return len(s.Damaged()) > 0 })
		child := w.fork(s, 1)[0]
		if len(child.Damaged()) != 1 {
			t.Errorf("the child is damaged by %+v", child.Damaged())
		}
		for _, s := range []*session.Session{child, s} {
			testkit.Has(t, "the first call", callIn(t, s, "plain", "x"), "lost: ")
			testkit.Has(t, "the next call", callIn(t, s, "plain", "x"), `{"pid":`)
		}
	})
	t.Run("told after a restart of the gateway", func(t *testing.T) {
		w := newWorld(t, forgetful)
		s := w.opened(session.OpenOptions{})
		callIn(t, s, "plain", "x")
		w.m.one("plain").kill()
		testkit.Eventually(t, "the session is marked", func() bool { return len(s.Damaged()) > 0 })
		// A gateway that dies before it has forgotten the instance counts its end twice.
		testkit.Eventually(t, "the instance is forgotten", func() bool {
			all, err := w.db.Handles(context.Background())
			return err == nil && !slices.ContainsFunc(all, func(h store.Handle) bool { return h.Server == "plain" })
		})
		w.crash(forgetful)
		s = w.Get(s.ID)
		testkit.Has(t, "the first call", callIn(t, s, "plain", "x"), "lost: ")
		testkit.Has(t, "the next call", callIn(t, s, "plain", "x"), `{"pid":`)
		if all := s.Damaged(); len(all) != 1 || all[0].Times > 1 {
			t.Errorf("the session is damaged by %+v", all)
		}
	})
	t.Run("while no gateway ran", func(t *testing.T) {
		w := newWorld(t, forgetful)
		s := w.opened(session.OpenOptions{Eager: true})
		callIn(t, s, "plain", "x")
		w.m.crash()
		w.m.one("plain").kill()
		w.m.one("noted").kill()
		w.crash(forgetful)
		s = w.Get(s.ID)
		testkit.Has(t, "the first call", callIn(t, s, "plain", "x"), "lost: ")
		testkit.Has(t, "the next call", callIn(t, s, "plain", "x"), `{"pid":`)
		testkit.Has(t, "one that was never called", callIn(t, s, "noted", "x"), `{"pid":`)
		if all := s.Damaged(); len(all) != 1 || all[0].Server != "plain" {
			t.Errorf("the session is damaged by %+v", all)
		}
	})
}

// told holds that the first call of a server is lost, and the next one is answered.
func told(t *testing.T, what string, s *session.Session) {
	t.Helper()
	testkit.Has(t, what+": the first call", callIn(t, s, "plain", "x"), "lost: ", `server "plain"`, s.ID)
	notTold(t, what+": the next call", s)
}

func notTold(t *testing.T, what string, s *session.Session) {
	t.Helper()
	testkit.Has(t, what, callIn(t, s, "plain", "x"), `{"pid":`)
}

// dies has a session call its server, which dies then.
func (w *world) dies(s *session.Session) {
	w.t.Helper()
	before := w.lines(s)
	notTold(w.t, "a call", s)
	w.m.one("plain").kill()
	testkit.Eventually(w.t, "the session is marked", func() bool { return w.lines(s) != before })
}

// A loss that no call was told of when a snapshot was made is told in every
// session that begins with it, once, and is in its trajectory.
func TestALossInASnapshot(t *testing.T) {
	yaml := strings.Replace(forgetful, "command: plain", "command: plain, fork: fresh", 1)
	w := newWorld(t, yaml)
	s := w.opened(session.OpenOptions{})
	w.dies(s)
	dead, child := w.frozen(s, "dead"), w.fork(s, 1)[0]
	w.crash(yaml)
	told(t, "a fork", w.Get(child.ID))
	for range 2 {
		n := w.opened(session.OpenOptions{From: dead.ID})
		testkit.Has(t, "the trajectory of a session of the snapshot", w.lines(n), "damage plain nothing ")
		told(t, "a session of the snapshot", n)
		notTold(t, "a session of a snapshot from after that", w.opened(session.OpenOptions{From: w.frozen(n, "").ID}))
	}
	next := w.frozen(w.opened(session.OpenOptions{From: dead.ID}), "")
	second := w.opened(session.OpenOptions{From: next.ID})
	w.crash(yaml)
	told(t, "one that begins with what was begun with the snapshot", w.Get(second.ID))
	var file bytes.Buffer
	if err := w.Export(context.Background(), dead.ID, nil, &file); err != nil {
		t.Fatal(err)
	}
	in, err := w.Import(context.Background(), session.ImportOptions{Name: "again"}, &file)
	if err != nil {
		t.Fatal(err)
	}
	told(t, "a session of the imported snapshot", w.opened(session.OpenOptions{From: in.ID}))
	few := w.opened(session.OpenOptions{From: dead.ID, Servers: []string{"mem"}})
	if got := w.lines(few); strings.Contains(got, "damage") {
		t.Errorf("the trajectory of one without the server is %s", got)
	}
	told(t, "the session itself", w.Get(s.ID))
}

// A session that is rewound to such a snapshot is told unless it was.
func TestARewindToALoss(t *testing.T) {
	yaml := strings.Replace(forgetful, "command: plain", "command: plain, fork: fresh", 1)
	w := newWorld(t, yaml)
	s := w.opened(session.OpenOptions{})
	rewind := func(to api.Snapshot) {
		t.Helper()
		if err := w.Rewind(context.Background(), s, to.ID, 0); err != nil {
			t.Fatal(failure(err))
		}
	}
	before := w.frozen(s, "before")
	w.dies(s)
	dead := w.frozen(s, "dead")
	rewind(dead)
	told(t, "one that was not told", s)
	rewind(dead)
	notTold(t, "one that was told", s)
	w.crash(yaml)
	s = w.Get(s.ID)
	rewind(dead)
	notTold(t, "one that was told before a restart", s)

	// It may have been told of another loss since, in a world that was given up.
	rewind(before)
	w.dies(s)
	dead = w.frozen(s, "dead again")
	rewind(before)
	w.dies(s)
	told(t, "the other loss", s)
	rewind(dead)
	told(t, "one that was told of another loss", s)
}

// Nor is it silent where such a snapshot is only what a server begins with.
func TestALossInATemplate(t *testing.T) {
	const yaml = "servers: {plain: {remote: {url: 'http://127.0.0.1:1', resource: x, snapshot: '/{remote_instance_id}/s'}, fork: memory}}\n"
	w := makeWorld(t, yaml, func(w *world) {
		w.boxes = &boxes{}
		w.change = func(o *session.Options) { o.Drivers["remote"] = w.boxes }
	})
	s := w.opened(session.OpenOptions{})
	w.dies(s)
	w.frozen(s, "dead")
	told(t, "the session", s)
	w.frozen(s, "told")
	for _, name := range []string{"dead", "told"} {
		asked := w.opened(session.OpenOptions{Members: map[string]catalog.Member{"plain": {Template: raw("snapshot:" + name)}}})
		w.apply(strings.Replace(yaml, "fork: memory", "fork: memory, template: 'snapshot:"+name+"'", 1))
		configured := w.opened(session.OpenOptions{})
		w.apply(yaml)
		for what, n := range map[string]*session.Session{"one that asked": asked, "one with the config's": configured} {
			if name == "dead" {
				told(t, what, n)
			}
			notTold(t, what+", after it was told", n)
			testkit.Has(t, what, damaged(n.Damaged()), "it began with snapshot ")
		}
	}
}

// A record of an earlier version has the reason alone.
func TestUntoldOfAnEarlierVersion(t *testing.T) {
	at := time.Date(2026, 11, 17, 4, 0, 0, 1, time.UTC)
	for text, want := range map[string]session.PendingLoss{
		`"it ended"`:         {Why: "it ended"},
		`{"why":"it ended"}`: {Why: "it ended"},
		`{"why":"it ended","at":"2026-11-17T04:00:00.000000001Z"}`: {Why: "it ended", At: at},
	} {
		var got session.PendingLoss
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s is read as %+v, %v", text, got, err)
		}
	}
}

// All sessions that called a shared server are told, each once; others are not.
func TestADeadSharedServer(t *testing.T) {
	w := newWorld(t, forgetful)
	a, b, c := w.opened(session.OpenOptions{}), w.opened(session.OpenOptions{}), w.opened(session.OpenOptions{})
	callIn(t, a, "all", "x")
	callIn(t, b, "all", "x")
	w.m.one("all").kill()
	for _, s := range []*session.Session{a, b} {
		testkit.Has(t, "the first call", callIn(t, s, "all", "x"), "lost: ", `server "all"`)
		testkit.Has(t, "the next call", callIn(t, s, "all", "x"), `{"pid":`)
		if all := s.Damaged(); len(all) != 1 || all[0].Server != "all" {
			t.Errorf("a session that called it is damaged by %+v", all)
		}
	}
	testkit.Has(t, "the first call of another", callIn(t, c, "all", "x"), `{"pid":`)
	wantDamage(t, "another", c.Damaged(), "")
}

// What a shared server knew is in the past of forks as well, and a rewind does not
// bring it back.
func TestADeadSharedServerOfForks(t *testing.T) {
	w := newWorld(t, strings.Replace(forgetful, "plain: {command: plain}", "plain: {command: plain, fork: fresh}", 1))
	s, other := w.opened(session.OpenOptions{}), w.opened(session.OpenOptions{})
	early := w.fork(s, 1)[0]
	callIn(t, s, "all", "x")
	callIn(t, other, "plain", "x")
	forks := append(w.fork(s, 2), w.fork(other, 1)...)
	grand := w.fork(forks[0], 1)[0]
	snap := w.frozen(s, "before")
	w.crash(strings.Replace(forgetful, "plain: {command: plain}", "plain: {command: plain, fork: fresh}", 1))
	w.m.one("all").kill()
	for name, id := range map[string]string{"the session": s.ID, "a fork": forks[0].ID, "its sibling": forks[1].ID, "a fork of the fork": grand.ID} {
		s := w.Get(id)
		if id == snap.Session {
			testkit.Eventually(t, "the loss is known", func() bool { return len(s.Damaged()) == 1 })
			if err := w.Rewind(context.Background(), s, snap.ID, 0); err != nil {
				t.Fatal(failure(err))
			}
		}
		testkit.Has(t, name, callIn(t, s, "all", "x"), "lost: ", `server "all"`)
		testkit.Has(t, name, callIn(t, s, "all", "x"), `{"pid":`)
		if all := s.Damaged(); len(all) != 1 || all[0].Server != "all" {
			t.Errorf("%s is damaged by %+v", name, all)
		}
	}
	for name, id := range map[string]string{"a fork from before the call": early.ID, "a fork of one that did not call": forks[2].ID} {
		testkit.Has(t, name, callIn(t, w.Get(id), "all", "x"), `{"pid":`)
		wantDamage(t, name, w.Get(id).Damaged(), "")
	}
}

// What the gateway ends itself marks the session and fails no call.
func TestEndsByTheGateway(t *testing.T) {
	both := func(why string) string {
		return "server \"plain\": " + why + "; kept: nothing\nserver \"noted\": " + why + "; kept: files\n"
	}
	for name, tt := range map[string]struct {
		act  func(w *world, s *session.Session)
		want string
	}{
		"stopped and started": {func(w *world, _ *session.Session) {
			w.close(false)
			w.open(forgetful)
		}, both("the gateway was stopped")},
		"restarted with its instances": {func(w *world, _ *session.Session) { w.reopen(forgetful) }, ""},
		"killed":                       {func(w *world, _ *session.Session) { w.crash(forgetful) }, ""},
		"disabled and enabled": {func(w *world, s *session.Session) {
			for _, on := range []bool{false, true} {
				for _, id := range []string{"plain", "noted", "clock"} {
					if err := w.Change(context.Background(), id, session.Change{Enabled: &on}); err != nil {
						w.t.Fatal(err)
					}
				}
				if !on {
					w.runs("mem")
				}
			}
		}, both("the server was switched off")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, forgetful)
			s := w.opened(session.OpenOptions{})
			for _, id := range []string{"plain", "noted", "clock", "mem"} {
				testkit.Has(t, "a call of "+id, callIn(t, s, id, "x"), `{"pid":`)
			}
			tt.act(w, s)
			s = w.Get(s.ID)
			for _, id := range []string{"plain", "noted", "clock", "mem"} {
				testkit.Has(t, "the next call of "+id, callIn(t, s, id, "x"), `{"pid":`)
			}
			want := strings.Split(tt.want, "\n")
			for _, line := range want {
				testkit.Has(t, "the damage", damaged(s.Damaged()), line)
			}
			if n := len(s.Damaged()); n != len(want)-1 && tt.want != "" || tt.want == "" && n != 0 {
				t.Errorf("the session is damaged by %q", damaged(s.Damaged()))
			}
		})
	}
}

// With on_loss: refuse a damaged session takes no calls until it is rewound.
func TestDamagedSessionsAreRefused(t *testing.T) {
	yaml := "sessions: {on_loss: refuse}\n" + strings.Replace(forgetful, "command: plain", "command: plain, fork: fresh", 1)
	w := newWorld(t, yaml)
	s := w.opened(session.OpenOptions{Servers: []string{"plain", "noted", "mem"}})
	callIn(t, s, "noted", "x")
	w.m.one("noted").kill()
	testkit.Has(t, "a server on its files", callIn(t, s, "noted", "x"), `{"pid":`)
	before := w.frozen(s, "")
	callIn(t, s, "plain", "x")
	w.m.one("plain").kill()
	first := callIn(t, s, "plain", "x")
	testkit.Has(t, "the first call", first, "lost: ", "refuse", "rewind it to snapshot "+before.ID)
	if strings.Contains(first, "begins anew") {
		t.Errorf("the first call is told %q", first)
	}
	for _, id := range []string{"plain", "noted", "mem"} {
		testkit.Has(t, "a further call of "+id, callIn(t, s, id, "x"), "lost: ", "sessions.on_loss is refuse", `server "plain"`, "rewind it to snapshot "+before.ID)
	}
	fork := callIn(t, w.fork(s, 1)[0], "mem", "x")
	if testkit.Has(t, "a fork's call", fork, "lost: ", "close it and open another"); strings.Contains(fork, "rewind") {
		t.Errorf("a fork without a snapshot is told %q", fork)
	}
	if err := w.Rewind(context.Background(), s, before.ID, 0); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"plain", "noted", "mem"} {
		testkit.Has(t, "a call after the rewind", callIn(t, s, id, "x"), `{"pid":`)
	}
	if all := s.Damaged(); len(all) != 1 || all[0].Kept != api.KeptFiles {
		t.Errorf("after the rewind it is damaged by %+v", all)
	}
}

// A gateway that was killed took along what can't be adopted: the next one marks the
// sessions that called it.
func TestKilledWithWhatNobodyAdopts(t *testing.T) {
	w := makeWorld(t, forgetful, func(w *world) { w.m.adopts = false })
	s, other := w.opened(session.OpenOptions{}), w.opened(session.OpenOptions{Eager: true})
	testkit.Has(t, "a call", callIn(t, s, "plain", "x"), `{"pid":`)
	w.crash(forgetful)
	s, other = w.Get(s.ID), w.Get(other.ID)
	testkit.Has(t, "the next call", callIn(t, s, "plain", "x"), `{"pid":`)
	testkit.Has(t, "the damage", damaged(s.Damaged()), `server "plain": the gateway was killed`, "kept: nothing")
	wantDamage(t, "a session that called nothing", other.Damaged(), "")
	w.crash(forgetful)
	if all := w.Get(s.ID).Damaged(); len(all) != 1 || all[0].Times != 2 {
		t.Errorf("after the second time it is damaged by %+v", all)
	}
	w.crash(forgetful)
	if all := w.Get(s.ID).Damaged(); len(all) != 1 || all[0].Times != 2 {
		t.Errorf("after one without a call it is damaged by %+v", all)
	}
}
