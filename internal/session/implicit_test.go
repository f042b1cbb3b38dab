package session_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/testkit"
)

// given are the sessions that clients have without opening them, by what they are.
func (w *world) given() map[string]*session.Session {
	w.t.Helper()
	ctx := context.Background()
	named, err := w.Named(ctx, "ada", "work")
	if err != nil {
		w.t.Fatal(err)
	}
	client, err := w.ForClient(ctx, "ada", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return map[string]*session.Session{"default": w.session("ada"), "named": named, "client": client}
}

// What the gateway ends itself is expected in implicit sessions: it is in the
// trajectory, marks nothing, and refuses nothing where losses do.
func TestEndsByTheGatewayInSessionsThatNobodyOpened(t *testing.T) {
	const yaml = "sessions: {on_loss: refuse}\nlimits: {idle: 24h}\n" + forgetful
	for name, tt := range map[string]struct {
		act    func(w *world)
		why    string
		adopts bool
	}{
		"stopped": {func(w *world) {
			w.close(false)
			w.open(yaml)
		}, "the gateway was stopped", true},
		"stopped, with what can't be adopted": {func(w *world) {
			w.close(false)
			w.open(yaml)
		}, "the gateway was stopped", false},
		"disabled": {func(w *world) {
			for _, on := range []bool{false, true} {
				for _, id := range []string{"plain", "noted", "all"} {
					if err := w.Change(context.Background(), id, session.Change{Enabled: &on}); err != nil {
						w.t.Fatal(err)
					}
				}
				if !on {
					w.runs("mem mem mem")
				}
			}
		}, "the server was switched off", true},
		"changed while no gateway ran": {func(w *world) {
			w.close(true)
			w.open(strings.NewReplacer("command: plain", "command: plain, args: [x]", "command: noted, args: [", "command: noted, args: [x, ", "command: all", "command: all, args: [x]").Replace(yaml))
		}, "the config of the server was changed", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(t, yaml, func(w *world) { w.m.adopts = tt.adopts })
			all := w.given()
			for _, s := range all {
				for _, id := range []string{"plain", "noted", "all", "mem"} {
					testkit.Has(t, "a call of "+id, callIn(t, s, id, "x"), `{"pid":`)
				}
			}
			tt.act(w)
			for what, s := range all {
				s = w.Get(s.ID)
				for _, id := range []string{"plain", "noted", "all", "mem"} {
					testkit.Has(t, what+": the next call of "+id, callIn(t, s, id, "x"), `{"pid":`)
				}
				wantDamage(t, what, s.Damaged(), "")
				testkit.Has(t, what+": the trajectory", w.lines(s), "damage plain nothing "+tt.why, "damage noted files "+tt.why, "damage all nothing "+tt.why)
			}
		})
	}
}

// Marks that earlier versions made for such ends go with the next start, and only those:
// what else is marked stays, and so does what can't be told apart.
func TestOldMarksOfEndsByTheGatewayGo(t *testing.T) {
	const yaml = "sessions: {on_loss: refuse}\nlimits: {idle: 24h}\n" + forgetful
	w := newWorld(t, yaml)
	mark := func(s *session.Session, server string, whys ...string) {
		for _, why := range whys {
			w.Damage(s, api.Damage{Server: server, Why: why, Kept: api.KeptNothing})
		}
	}
	const stopped, idle, off, reloaded = "the gateway was stopped", "the session was not used, and the gateway ended its servers", "the server was switched off", "the config of the server was changed, or it was removed"
	all := w.given()
	for _, s := range all {
		mark(s, "plain", stopped)
		mark(s, "noted", idle, off, reloaded+"; its last words: bye")
	}
	died, opened := w.session("bob"), w.opened(session.OpenOptions{Servers: []string{"plain"}})
	mark(died, "plain", stopped, "exited with status 1", stopped)
	mark(died, "noted", stopped)
	mark(opened, "plain", stopped)
	hazy := w.session("eve")
	mark(hazy, "plain", stopped, stopped)
	w.close(true)
	w.wrap = func(s store.Store) store.Store { return forgetsEvents{s, hazy.ID} }
	w.open(yaml)
	for what, s := range all {
		s = w.Get(s.ID)
		wantDamage(t, what, s.Damaged(), "")
		testkit.Has(t, what+": the next call", callIn(t, s, "plain", "x"), `{"pid":`)
		testkit.Has(t, what+": the trajectory", w.lines(s), "damage plain nothing "+stopped, "damage noted nothing "+idle)
	}
	for what, s := range map[string]*session.Session{"one with a death": died, "an opened one": opened, "one whose trajectory is gone": hazy} {
		if got := w.Get(s.ID).Damaged(); len(got) != 1 || got[0].Server != "plain" {
			t.Errorf("%s is damaged by %q", what, damaged(got))
		}
	}
	w.wrap = nil
	w.reopen(yaml)
	for what, s := range all {
		wantDamage(t, what+", once more", w.Get(s.ID).Damaged(), "")
	}
}

// forgetsEvents is a store that lost what happened to a session.
type forgetsEvents struct {
	store.Store
	session string
}

func (s forgetsEvents) Events(ctx context.Context, id string) ([]store.Event, error) {
	if id == s.session {
		return nil, nil
	}
	return s.Store.Events(ctx, id)
}

// A death counts there as anywhere. Where it has calls refused, that concerns the server
// that died and no other, and what is advised is possible there and keeps what the other
// servers remember.
func TestDeathsInSessionsThatNobodyOpened(t *testing.T) {
	yaml := "sessions: {on_loss: refuse}\n" + strings.Replace(forgetful, "command: plain", "command: plain, fork: fresh", 1)
	for what, mend := range map[string]string{
		"default": "set sessions.on_loss to tell", "named": "set sessions.on_loss to tell", "client": "connect anew",
	} {
		for _, server := range []string{"plain", "all"} {
			t.Run(what+" "+server, func(t *testing.T) {
				w := newWorld(t, yaml)
				s := w.given()[what]
				others := slices.DeleteFunc([]string{"plain", "noted", "clock", "mem", "all"}, func(id string) bool { return id == server })
				callIn(t, s, server, "x")
				w.m.one(server).kill()
				first, next := callIn(t, s, server, "x"), callIn(t, s, server, "x")
				// The death may be known before the first call, which is refused like the next.
				testkit.Has(t, "the first call", first, "lost: ", "refuse", `server "`+server+`"`, mend)
				testkit.Has(t, "the next call", next, "lost: ", "sessions.on_loss is refuse", mend)
				testkit.Has(t, "the first call", first, "; its other servers go on; ")
				testkit.Has(t, "the next call", next, "; its other servers go on; ")
				for _, told := range []string{first, next} {
					for _, wrong := range []string{"close it", "rewind it", "begins anew"} {
						if strings.Contains(told, wrong) {
							t.Errorf("a call is told %q", told)
						}
					}
				}
				for _, id := range others {
					testkit.Has(t, "a call of "+id, callIn(t, s, id, "x"), `{"pid":`)
				}
				if all := s.Damaged(); len(all) != 1 || all[0].Server != server {
					t.Errorf("the session is damaged by %+v", all)
				}
			})
		}
	}
	t.Run("with a snapshot", func(t *testing.T) {
		w := newWorld(t, yaml)
		s := w.session("ada")
		callIn(t, s, "plain", "x")
		before := w.frozen(s, "")
		w.m.one("plain").kill()
		for _, when := range []string{"the first call", "the next call"} {
			testkit.Has(t, when, callIn(t, s, "plain", "x"), "lost: ", "rewind it to snapshot "+before.ID, "set sessions.on_loss to tell")
		}
		w.frozen(s, "") // has the loss in it, and mends nothing
		testkit.Has(t, "a call after another snapshot", callIn(t, s, "plain", "x"), "rewind it to snapshot "+before.ID)
		if err := w.Rewind(t.Context(), s, before.ID, 0); err != nil {
			t.Fatal(err)
		}
		testkit.Has(t, "a call after the rewind", callIn(t, s, "plain", "x"), `{"pid":`)
	})
}

// A session that has used a server of all is not taken for one with servers to end.
func TestUnusedSessionsAreEndedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Log
		w := makeWorld(t, "limits: {idle: 10m}\n"+forgetful, func(w *world) {
			w.change = func(o *session.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) }
		})
		s := w.session("ada")
		call(t, s, "plain", "x")
		call(t, s, "all", "x")
		for range 3 {
			time.Sleep(11 * time.Minute)
		}
		synctest.Wait()
		w.runs("all")
		if n := strings.Count(log.String(), "servers of an unused session ended"); n != 1 {
			t.Errorf("it is said %d times that servers ended", n)
		}
		wantDamage(t, "the session", s.Damaged(), "")
		testkit.Has(t, "the trajectory", w.lines(s), "damage plain nothing the session was not used")
	})
}
