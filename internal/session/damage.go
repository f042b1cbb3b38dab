package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/upstream/record"
)

// A session is damaged when it is no longer what its calls made of it. The mark
// is one of the session's facts, so that it lasts; it is frozen with the session,
// so that forks, snapshots and exports have it, and a rewind takes the
// snapshot's. The trajectory has a line for each time.

// Damage marks a session as damaged and adds a line to its trajectory. At and
// Call are filled in where they are missing. A mark that can't be written down
// counts all the same, and is written later. Of a closed session nothing is
// marked.
func (r *Registry) Damage(s *Session, d api.Damage) { r.damage(s, d, false) }

// damage is Damage; with due the next call to the server is told.
func (r *Registry) damage(s *Session, d api.Damage, due bool) { r.damageWith(s, d, due, false) }

// damageWith is damage; with unfit it is of a memory that does not fit, and lasts
// until it fits or is given up.
func (r *Registry) damageWith(s *Session, d api.Damage, due, unfit bool) {
	ctx := context.WithoutCancel(r.life)
	d = dated(d)
	if d.Call == "" {
		d.Call = r.lastCallOf(ctx, s)
	}
	if s.damageLeft(d, due) {
		return
	}
	marked := s.remark(func(f *facts) bool {
		if _, known := f.Unfit[d.Server]; known && unfit {
			return false
		}
		f.Damaged = api.AddDamage(f.Damaged, d)
		f.uncall(d.Server)
		if due {
			f.Owed = maps.Clone(f.Owed)
			if f.Owed == nil {
				f.Owed = make(map[string]pendingLoss)
			}
			f.Owed[d.Server] = pendingLoss{Why: d.Why, At: d.At}
		}
		if unfit {
			f.Unfit = maps.Clone(f.Unfit)
			if f.Unfit == nil {
				f.Unfit = make(map[string]unfitMemory)
			}
			f.Unfit[d.Server] = unfitMemory{Damage: d}
		}
		return true
	})
	if marked {
		r.o.Log.Warn("session damaged", "session", s.ID, "server", d.Server, "kept", d.Kept, "because", d.Why)
		r.note(ctx, r.damageEvent(s.ID, d, ""))
	}
}

// endedByUs notes that the gateway itself ended a server which a session has called. That
// damages an opened session. In an implicit one programs end so in the ordinary course of
// things, as a client's own would: the trajectory has a line of it, and nothing is marked.
func (r *Registry) endedByUs(s *Session, d api.Damage) {
	if s.Kind == KindOpened {
		r.Damage(s, d)
		return
	}
	if s.known().Called[d.Server] {
		s.remark(func(f *facts) bool { return f.uncall(d.Server) })
	}
	d = dated(d)
	r.o.Log.Info("server of a session ended", "session", s.ID, "server", d.Server, "kept", d.Kept, "because", d.Why)
	r.note(context.WithoutCancel(r.life), r.damageEvent(s.ID, d, ""))
}

// unmark takes back the marks that earlier versions left on implicit sessions for ends by
// the gateway itself, which endedByUs does not make. A mark has no more than the first
// and the last reason, so that of several times the trajectory says what they were; where
// it lacks one, the mark stays.
func (r *Registry) unmark(ctx context.Context) error {
	for _, s := range r.sessions {
		damaged := s.Damaged()
		if s.Kind == KindOpened || len(damaged) == 0 {
			continue
		}
		events, err := r.o.Shared.Events(ctx, s.ID)
		if err != nil {
			return fmt.Errorf("looking for what damaged session %s: %w", s.ID, err)
		}
		left := slices.DeleteFunc(damaged, func(d api.Damage) bool { return onlyOurs(d, events) })
		if len(left) == len(s.Damaged()) {
			continue
		}
		s.remark(func(f *facts) bool {
			f.Damaged = left
			return true
		})
		r.o.Log.Info("a session is no longer marked for servers that an earlier gateway ended itself", "session", s.ID, "still damaged", len(left))
	}
	return nil
}

// onlyOurs reports whether a damage is nothing but ends by the gateway itself.
func onlyOurs(d api.Damage, events []store.Event) bool {
	ours := func(why string) bool {
		return slices.Contains([]string{whyStopped, whyIdle, whyReloaded, whyOff}, api.WithoutWords(why))
	}
	if d.Times <= 1 || !ours(d.Why) {
		return ours(d.Why)
	}
	times := 0
	for _, e := range events {
		var was eventData
		if e.Kind != eventDamaged || json.Unmarshal(e.Data, &was) != nil || was.Server != d.Server || was.Kept != d.Kept {
			continue
		}
		if !ours(was.Reason) {
			return false
		}
		times++
	}
	return times >= d.Times
}

// dated is a damage with its time, and with no more in its reason than is not said of it
// anyway.
func dated(d api.Damage) api.Damage {
	if d.At.IsZero() {
		d.At = time.Now().UTC()
	}
	d.Why = strings.TrimPrefix(d.Why, fmt.Sprintf("server %q", d.Server))
	d.Why = strings.TrimLeft(d.Why, ": ")
	return d
}

// uncall forgets that a server was called whose instance ends with the gateway.
func (f *facts) uncall(server string) bool {
	if !f.Called[server] {
		return false
	}
	f.Called = maps.Clone(f.Called)
	delete(f.Called, server)
	return true
}

// remark changes facts that count at once: what can't be written down is written later.
// It reports whether edit changed anything; of a session that has ended nothing is.
func (s *Session) remark(edit func(*facts) bool) bool {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	if !s.ended.IsZero() || !edit(&s.facts) {
		s.mu.Unlock()
		return false
	}
	s.facts.Rev++
	s.unsaved = true
	s.mu.Unlock()
	s.saveDamage(context.WithoutCancel(s.r.life))
	return true
}

// lastCallOf is the id of the last call of a session; empty where it made none, or
// where that is not known at once.
func (r *Registry) lastCallOf(ctx context.Context, s *Session) string {
	j := r.o.Record.Journal
	if j == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	last, err := j.LastOf(ctx, s.ID, driver.MethodNetwork, record.MethodAnnotation)
	if err != nil {
		r.o.Log.Warn("the last call before a damage is not known", "session", s.ID, "err", err)
	}
	if last == 0 {
		return ""
	}
	return store.CallID(last)
}

// damageEvent is the line of a damage, with the snapshot that the session had it from
// when it began.
func (r *Registry) damageEvent(session string, d api.Damage, snapshot string) store.Event {
	e := r.event(session, eventDamaged, eventData{Server: d.Server, Reason: d.Why, Words: d.Words, Kept: d.Kept, Snapshot: snapshot})
	e.At = d.At
	return e
}

// DamageByID is Damage for a session that is known by its id, if there is one.
func (r *Registry) DamageByID(id string, d api.Damage) {
	if s := r.Get(id); s != nil {
		r.Damage(s, d)
	}
}

// saveDamage writes down a session whose damage is not. s.changing is held. The
// request that opens a session writes it down itself.
func (s *Session) saveDamage(ctx context.Context) {
	if s.r.Get(s.ID) != s {
		return
	}
	f := s.known()
	rec, err := s.record(f)
	if err == nil {
		err = s.r.o.Shared.PutSessions(ctx, rec)
	}
	if err != nil {
		s.r.o.Log.Warn("damage of a session not recorded, and tried again", "session", s.ID, "err", err)
		return
	}
	s.recordInFolder(rec)
	s.mu.Lock()
	s.unsaved = false
	s.mu.Unlock()
}

// saveDamages writes down what could not be before.
func (r *Registry) saveDamages(ctx context.Context) {
	for _, s := range r.Sessions() {
		s.mu.Lock()
		unsaved := s.unsaved
		s.mu.Unlock()
		if !unsaved {
			continue
		}
		s.changing.Lock()
		s.mu.Lock()
		ended := !s.ended.IsZero()
		s.mu.Unlock()
		if !ended {
			s.saveDamage(ctx)
		}
		s.changing.Unlock()
	}
}

// Damaged returns what the session is damaged by.
func (s *Session) Damaged() []api.Damage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.facts.Damaged)
}

// losses are the damage that a session with these servers has which begins with what
// was frozen, and what it has to be told of it.
func (f *frozen) losses(c *catalog.Catalog) ([]api.Damage, map[string]pendingLoss) {
	missing := func(server string) bool { return server != "" && c.Entry(server) == nil }
	damaged, owed := slices.Clone(f.Damaged), maps.Clone(f.Owed)
	maps.DeleteFunc(owed, func(server string, _ pendingLoss) bool { return missing(server) })
	return slices.DeleteFunc(damaged, func(d api.Damage) bool { return missing(d.Server) }), owed
}

// beginsWith marks a session that begins with a part of a damaged snapshot: what
// the server was had there is what the entry has here, and for none the workspace.
// A loss that no call had been told of when the snapshot was made is told here.
// Where a part is files anyway, nothing of it was lost with a memory.
func (s *Session) beginsWith(template, was string, e *catalog.Entry) {
	name, ok := strings.CutPrefix(template, catalog.FromSnapshot)
	if !ok {
		return
	}
	snap := s.r.snapshotNamed(name, "")
	if snap == nil {
		return
	}
	server, files := "", true
	if e != nil {
		mode, _ := e.ForkMode()
		server, files = e.ID, mode == config.ForkFiles
	}
	for _, d := range snap.Damaged {
		if d.Server != was || d.Kept == api.KeptFiles && files {
			continue
		}
		why := fmt.Sprintf("it began with snapshot %s, which is damaged: %s", snap.ID, api.WithoutWords(d.Why))
		_, owed := snap.Owed[was]
		s.r.damage(s, api.Damage{Server: server, Why: why, Words: d.Words, Kept: d.Kept}, owed)
	}
}

// The most that is read of what a snapshot's file says about damage.
const (
	maxDamages = 1000
	maxWhy     = 4 << 10
)

// readDamage is what the file of a snapshot says about damage, cut to what is
// said here. Nothing of it is left out: a file whose damage is odd is damaged.
func readDamage(all []api.Damage) []api.Damage {
	var out []api.Damage
	for i, d := range all {
		if i == maxDamages {
			break
		}
		if d.Kept != api.KeptNothing && d.Kept != api.KeptFiles {
			d.Kept = api.KeptPart
		}
		d.Why, d.Server, d.Call = d.Why[:min(len(d.Why), maxWhy)], d.Server[:min(len(d.Server), maxWhy)], ""
		d.Words, d.LastWhy = d.Words[:min(len(d.Words), maxWhy)], d.LastWhy[:min(len(d.LastWhy), maxWhy)]
		out = append(out, d)
	}
	return out
}

// readOwed is what the file of a snapshot has of losses that no call was told of.
func readOwed(all map[string]pendingLoss, damaged []api.Damage) map[string]pendingLoss {
	out := make(map[string]pendingLoss)
	for _, d := range damaged {
		if loss, ok := all[d.Server]; ok {
			loss.Why = loss.Why[:min(len(loss.Why), maxWhy)]
			out[d.Server] = loss
		}
	}
	return out
}

// noteDamage marks a session where an error says that what is stored of it is damaged. A
// damage that is met again in the same life of the session is not marked again.
func (s *Session) noteDamage(server string, err error) {
	var d *driver.DamageError
	if !errors.As(err, &d) {
		return
	}
	if _, known := s.knownDamage.LoadOrStore(server+": "+d.Why(), true); known {
		return
	}
	s.r.Damage(s, api.Damage{Server: server, Why: "stored data is lost: " + d.Why(), Kept: api.KeptPart})
}

// noteCut marks a session whose workspace has lost its end, and has the next call of
// a server that sees the workspace told.
func (s *Session) noteCut(err error) {
	s.r.damage(s, api.Damage{Why: "stored data is lost: " + err.Error(), Kept: api.KeptPart}, true)
}
