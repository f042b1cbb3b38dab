package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// A server whose lists are not known is asked by an instance that belongs to no
// session and ends afterwards, so that no session starts its own for a list. One
// that all sessions share is asked itself.

const (
	// learnAtOnce is how many servers are asked at once while no request waits.
	learnAtOnce = 3
	// learnPause is the longest pause before a server that failed is asked again, and
	// the shortest where it fails until a person changes something. finalPause is the
	// longest of those.
	learnPause = time.Minute
	finalPause = 16 * time.Minute
)

// learners are the instances that are asked.
type learners struct {
	mu   sync.Mutex
	of   map[string]*learner // by what they are started with
	slot chan struct{}
}

type learner struct {
	e     *catalog.Entry
	up    *upstream.Upstream
	end   func() // ends the instance; nil for a shared one
	clear func() // removes the state that it left when it failed; nil for a shared one
	round *round // the running one; nil for none
	// lacking are sessions whose clients have lists without this server, which are told
	// when it is known.
	lacking map[*Session]struct{}
	pause   *time.Timer // until the next round for them; nil for none
	failed  int         // rounds in a row
	err     error       // of the last one
	next    time.Time   // no round before this, unless a request asks for this server alone
}

// A round asks a server for everything that it lists.
type round struct {
	up    *upstream.Upstream
	began time.Time
	again bool // the one before it failed
	done  chan struct{}
	k     *Known
	err   error
}

// Learn asks a server that nothing is known of what it lists, once for all who want
// to know. It is waited for as upstream.Awaited says, or with no wait as long as it
// takes; when it answers later, the session's clients are told.
func (s *Session) Learn(ctx context.Context, e *catalog.Entry, wait time.Duration) (*Known, error) {
	l, now, err := s.r.learn(e, wait == 0)
	if err != nil {
		return nil, err
	}
	if now != nil {
		cancel := func() {}
		switch {
		case wait == 0:
		case now.again:
			ctx, cancel = context.WithDeadline(ctx, now.began.Add(min(wait, upstream.RetryWait)))
		default:
			ctx, cancel = now.up.Awaited(ctx, wire.MethodListTools, now.began, wait)
		}
		select {
		case <-now.done:
		case <-ctx.Done():
		}
		cancel()
	}
	s.r.learners.mu.Lock()
	defer s.r.learners.mu.Unlock()
	if now.over() && now.err == nil {
		return now.k, nil
	}
	l.lacking[s] = struct{}{}
	if l.round == nil && l.pause == nil {
		s.r.again(l)
	}
	switch {
	case now.over():
		return nil, now.err
	case l.err != nil:
		return nil, l.err
	}
	return nil, l.up.NotYet(wire.MethodListTools)
}

// over reports whether a round has come to its end.
func (now *round) over() bool {
	if now == nil {
		return false
	}
	select {
	case <-now.done:
		return true
	default:
		return false
	}
}

// learn begins to ask a server, or joins the running round. There is no round
// where the server failed and it is too early for another one; with force there
// is.
func (r *Registry) learn(e *catalog.Entry, force bool) (*learner, *round, error) {
	l, err := r.learner(e)
	if err != nil {
		return nil, nil, err
	}
	r.learners.mu.Lock()
	defer r.learners.mu.Unlock()
	if l.round == nil && (force || !time.Now().Before(l.next)) && !r.beginRound(l) {
		return nil, nil, errStopping
	}
	return l, l.round, nil
}

// beginRound begins a round. r.learners.mu is held.
func (r *Registry) beginRound(l *learner) bool {
	now := &round{up: l.up, began: time.Now(), again: l.failed > 0, done: make(chan struct{})}
	if l.pause != nil {
		l.pause.Stop()
		l.pause = nil
	}
	if !r.background(func() { r.ask(l, now) }) {
		return false
	}
	l.round = now
	return true
}

// again has a server that failed asked once more after a pause, as long as there are
// clients that lack it. r.learners.mu is held.
func (r *Registry) again(l *learner) {
	for s := range l.lacking {
		if s.isClosed() || len(s.watching()) == 0 {
			delete(l.lacking, s)
		}
	}
	if len(l.lacking) == 0 {
		return
	}
	l.pause = time.AfterFunc(time.Until(l.next), func() {
		r.learners.mu.Lock()
		defer r.learners.mu.Unlock()
		if l.pause != nil && l.round == nil && r.learners.of[l.e.WarmKey()] == l {
			r.beginRound(l)
		}
	})
}

// learner returns the instance to ask, which is not started yet.
func (r *Registry) learner(e *catalog.Entry) (*learner, error) {
	key := e.WarmKey()
	r.learners.mu.Lock()
	defer r.learners.mu.Unlock()
	l := r.learners.of[key]
	if l != nil && (l.end != nil || l.round != nil) {
		return l, nil
	}
	if l == nil {
		l = &learner{e: e, lacking: make(map[*Session]struct{})}
	}
	if e.Shares() && e.Fronter == nil { // another one may have taken the place of the one before
		up, err := r.sharedUpstream(e)
		if err != nil {
			return nil, err
		}
		l.up = up
	} else {
		l.up, l.clear, l.end = r.nobodys(e)
	}
	r.learners.of[key] = l
	return l, nil
}

// nobodys makes the hold on an instance as for a new session, without one. Nothing
// is left of it after its end.
func (r *Registry) nobodys(e *catalog.Entry) (up *upstream.Upstream, clear, end func()) {
	spec := e.Spec()
	spec.Log = r.o.Log
	// Without a handle: the next gateway ends what it finds of it.
	spec.Dir = filepath.Join(r.o.Dir, strings.ReplaceAll(e.ID, "~", ".")+"-"+newID()[len("ses_"):])
	o := r.upstreamOptions(e, spec, nil)
	o.Eager = false
	keeper := e.Keeper()
	if e.Fronter != nil { // which knows what the server lists, without a program
		o.Driver, o.Front, o.Startup, keeper = e.Fronter, nil, nil, nil
	}
	home := r.home(warmPrefix + newID()[len("ses_"):])
	state := filepath.Join(home, e.ID)
	if keeper != nil {
		o.Prepare = func(ctx context.Context, spec *driver.Spec) error {
			spec.State = state
			_, err := r.seed(ctx, e, "", state, driver.Source{})
			return err
		}
	}
	up = upstream.New(o)
	clear = func() {
		if keeper == nil {
			return
		}
		ctx, cancel := afterwards(r.life)
		defer cancel()
		r.erase(ctx, e, state)
		if err := os.Remove(home); err != nil && !os.IsNotExist(err) {
			r.o.Log.Warn("folder of a server that was asked for its lists not removed", "folder", home, "err", err)
		}
	}
	return up, clear, func() {
		up.Close()
		clear()
	}
}

// ask reads all lists of a server and keeps them.
func (r *Registry) ask(l *learner, now *round) {
	e := l.e
	func() {
		defer telemetry.Contain(r.o.Log, telemetry.InUpstream, e.ID, func(err error) { now.k, now.err = nil, err })
		now.k, now.err = r.readAll(l)
	}()
	ran := now.err != nil && l.up.Runs()
	if ran && !now.again && r.life.Err() == nil { // that it does not start is in the log
		r.o.Log.Warn("it is not known what a server lists", "server", e.ID, "err", now.err)
	}
	ended := ran && l.end != nil
	if now.err != nil && l.end != nil { // before another round may begin
		if ended {
			l.end()
		} else {
			l.clear()
		}
	}
	r.learners.mu.Lock()
	l.round = nil
	lacking := l.lacking
	over := now.err == nil
	if over {
		delete(r.learners.of, e.WarmKey())
	} else {
		l.fails(now.err)
		if ended && r.learners.of[e.WarmKey()] == l {
			before := l.up
			l.up, l.clear, l.end = r.nobodys(e)
			l.up.Follow(before)
		}
		r.again(l)
	}
	close(now.done)
	r.learners.mu.Unlock()
	if !over {
		return
	}
	for s := range lacking {
		for _, method := range upstream.ListMethods {
			s.Announce(e.ID, NoteOf(method))
		}
	}
	if l.end != nil {
		l.end()
	}
}

// fails notes that a round failed. r.learners.mu is held.
func (l *learner) fails(err error) {
	l.failed++
	pause := min(time.Second<<min(l.failed, 10), learnPause)
	if ours := (*api.Error)(nil); errors.As(err, &ours) && ours.Final {
		pause = min(learnPause<<min(l.failed-1, 10), finalPause)
	}
	l.err, l.next = err, time.Now().Add(pause)
	if why := l.up.Failing(); why != nil {
		l.err = why // which does not say when the next try is
	}
}

// readAll reads all lists of a server and keeps them. A list that can't be had is not
// known, and the others are; those that the server does not have say nothing of it. After
// one that does not come in time no other is asked for.
func (r *Registry) readAll(l *learner) (*Known, error) {
	lists := make(map[string][][]byte)
	var hello upstream.Hello
	var failed error
	came := false
	for _, method := range upstream.ListMethods {
		answer, items, err := l.up.ReadList(r.life, upstream.Request{Method: method, Client: &upstream.Client{}})
		switch {
		case err == nil:
			hello, lists[method] = answer, items
			came = came || answer.Lists(method)
		case failed == nil:
			failed = err
		}
		if err != nil && (!l.up.Runs() || upstream.Kind(err) == api.KindTimeout) {
			break
		}
	}
	if failed != nil && !came {
		return nil, failed
	}
	return r.learned(l.e, nil, "", hello, lists), nil
}

// learnAll asks the servers of a catalog that nothing is known of, a few at a time.
// It waits for nothing. What failed and has another entry now has another chance.
func (r *Registry) learnAll(c *catalog.Catalog) {
	if !r.o.Learn {
		return
	}
	r.learners.mu.Lock()
	for _, l := range r.learners.of {
		if e := c.Entry(l.e.ID); e != nil && l.round == nil && !reflect.DeepEqual(e.Server, l.e.Server) {
			l.e, l.failed, l.err, l.next = e, 0, nil, time.Time{}
			l.up.Retry()
		}
	}
	r.learners.mu.Unlock()
	for _, e := range c.Entries {
		if e.Learns() {
			r.learnSoon(e)
		}
	}
}

// learnSoon asks a server when it is its turn.
func (r *Registry) learnSoon(e *catalog.Entry) {
	if !r.o.Learn || !e.Learns() {
		return
	}
	r.background(func() {
		select {
		case r.learners.slot <- struct{}{}:
		case <-r.life.Done():
			return
		}
		defer func() { <-r.learners.slot }()
		if now := r.Catalog().Entry(e.ID); now == nil || now.WarmKey() != e.WarmKey() || !now.Learns() {
			return // changed meanwhile
		}
		if all := r.find(e, keyOfKnown(e, nil, "")); all != nil {
			return
		}
		if _, now, err := r.learn(e, false); err == nil && now != nil {
			<-now.done
		}
	})
}

// relearn asks a server again that failed when it was asked, since an instance of it has
// started.
func (r *Registry) relearn(e *catalog.Entry) {
	r.learners.mu.Lock()
	defer r.learners.mu.Unlock()
	if l := r.learners.of[e.WarmKey()]; l != nil && l.failed > 0 && l.round == nil {
		l.up.Restart()
		r.beginRound(l)
	}
}

// unlisted is why a server did not give a list when it was last asked for no
// session in particular; nil where it did, or was not asked.
func (r *Registry) unlisted(e *catalog.Entry, method string) *api.Error {
	r.learners.mu.Lock()
	defer r.learners.mu.Unlock()
	if l := r.learners.of[e.WarmKey()]; l != nil && l.end != nil {
		return l.up.Unanswered(method)
	}
	return nil
}

// dropLearners ends those of servers that a catalog no longer has; all of them with nil.
// The others stay, since they know which servers failed.
func (r *Registry) dropLearners(c *catalog.Catalog) {
	var over []*learner
	r.learners.mu.Lock()
	for key, l := range r.learners.of {
		stays := false
		if c != nil {
			e := c.Entry(l.e.ID)
			stays = e != nil && e.WarmKey() == key && e.Learns()
		}
		if !stays {
			delete(r.learners.of, key)
			over = append(over, l)
			if l.pause != nil {
				l.pause.Stop()
			}
		}
	}
	r.learners.mu.Unlock()
	for _, l := range over {
		if l.end != nil && !r.background(l.end) {
			l.end()
		}
	}
}

// learnersOf returns the holds on a server that belong to no session.
func (r *Registry) learnersOf(id string) (out []*upstream.Upstream) {
	r.learners.mu.Lock()
	defer r.learners.mu.Unlock()
	for _, l := range r.learners.of {
		if l.e.ID == id && l.end != nil {
			out = append(out, l.up)
		}
	}
	return out
}
