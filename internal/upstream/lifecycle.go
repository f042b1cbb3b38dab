package upstream

import (
	"context"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// An Upstream is one server as one session sees it, or as all do where it is
// shared. It starts the instance when it is first needed, and again, with
// growing pauses, when it dies.
//
//	idle --use--> starting --ok--> ready --dies--> failed --pause over, wanted--> starting
//	                  \--fails--> failed                           Close: any --> closed
type Upstream struct {
	o Options

	mu        sync.Mutex
	state     string
	reason    string
	words     string                // what the server wrote before it failed
	lost      error                 // why, where to start again does not help
	final     bool                  // until an operator changes something
	failing   *api.Error            // why the last start failed; nil once one succeeds
	hung      map[string]*api.Error // the lists that were asked for, and why one did not come in time; nil for one that did
	fetches   bool                  // packages, for a start
	fetched   time.Time             // when the last fetch ended
	since     time.Time
	conn      *Conn
	inst      driver.Instance
	spec      driver.Spec // that inst was started or adopted with
	attempt   *attempt
	next      time.Time // no new attempt before this
	pause     *backoff.ExponentialBackOff
	restarts  int
	adopt     *Adoption
	noProbe   bool
	anew      bool // the next attempt may begin without the memory in the state
	closed    bool
	ending    string        // why an instance of a session that stays is ended by us; empty for none
	leaving   bool          // closed, with an instance that goes on
	suspended bool          // closed, with a memory that is kept
	finished  chan struct{} // closed when everything is released
	watchers  map[*watching]struct{}
	level     string
	subs      map[string]int
	retry     *time.Timer
	held      int           // how many holds keep it from starting
	unheld    chan struct{} // closed when the last hold is released
	room      func()        // gives the room of the instance back; nil while it has none

	levelling sync.Mutex // held while a connection is told the level
	keeping   sync.Mutex // held while the handle is written or forgotten
	losing    sync.Mutex // held while a loss is reported
	stateLost bool       // what a start could not bring back is reported; guarded by losing

	calls   atomic.Int64
	connect atomic.Int64 // until the server answers
	timeout atomic.Int64 // of one call, from its last progress; zero for none
	most    atomic.Int64 // of one call
	clock   clock
	chain   Caller // the policies around relay

	life context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup
}

// maxPause bounds the pause that a server may ask for before the next attempt.
const maxPause = 10 * time.Minute

type attempt struct {
	done   chan struct{}
	err    error
	wanted bool // a caller waits for it
}

// errNotWanted ends an attempt to adopt an instance that is gone, if no caller has
// asked for another one.
var errNotWanted = errors.New("not wanted yet")

type watching struct{ w Watcher }

// New makes an Upstream. Nothing is started before it is used, unless it is
// eager or there is an instance to adopt.
func New(o Options) *Upstream {
	if o.Member == "" {
		o.Member = o.Spec.Server
	}
	if o.Health == nil {
		o.Health = &Health{Log: o.Log, Mask: o.Conn.Mask}
	}
	o.Conn.mend = o.Driver.Info().Mends.Of(o.Spec.Server)
	u := &Upstream{o: o, state: api.StateIdle, since: time.Now(), adopt: o.Adopt, watchers: make(map[*watching]struct{}), subs: make(map[string]int), hung: make(map[string]*api.Error), finished: make(chan struct{})}
	u.clock.keys = "servers." + o.Spec.Server + "."
	u.SetTimeouts(o.ConnectTimeout, o.CallTimeout, o.MaxTimeout)
	u.chain = relay{u}
	if o.Wrap != nil {
		u.chain = o.Wrap(u.chain)
	}
	u.life, u.end = context.WithCancel(context.Background())
	u.pause = backoff.NewExponentialBackOff()
	u.pause.InitialInterval = 250 * time.Millisecond
	u.pause.MaxInterval = 30 * time.Second
	if o.Eager || o.Adopt != nil {
		u.Kick()
	}
	return u
}

// Server returns the server's id, with its ordinal where it is a further one of
// its session.
func (u *Upstream) Server() string { return u.o.Member }

// Name tells the Upstreams of one server apart.
func (u *Upstream) Name() string { return filepath.Base(u.o.Spec.Dir) }

// Session returns the session that owns it, empty when it is shared.
func (u *Upstream) Session() string { return u.o.Spec.Session }

// SetTimeouts sets how long a start may take from now on, and a call from its last
// progress, and at most; zero for no limit.
func (u *Upstream) SetTimeouts(connect, each, most time.Duration) {
	u.connect.Store(int64(connect))
	u.timeout.Store(int64(each))
	u.most.Store(int64(most))
}

// Kick starts the instance if it is not running, without waiting for it.
func (u *Upstream) Kick() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed && u.held == 0 && u.conn == nil && u.attempt == nil && !time.Now().Before(u.next) {
		u.begin()
	}
}

// Retry ends the pause after a failure: the cause was mended. If a caller waits for
// the server, or it is eager, it starts at once.
func (u *Upstream) Retry() {
	u.mu.Lock()
	clear(u.hung)
	u.mu.Unlock()
	u.Restart()
}

// Restart is Retry for a server that should start by now; whether its lists come is
// still unknown.
func (u *Upstream) Restart() {
	u.mu.Lock()
	u.next, u.failing = time.Time{}, nil
	u.pause.Reset()
	wanted := u.state == api.StateFailed && (u.o.Eager || len(u.watchers) > 0)
	u.mu.Unlock()
	if wanted {
		u.Kick()
	}
}

// Peek returns the connection if there is one, without waiting.
func (u *Upstream) Peek() *Conn {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.conn
}

// Runs reports whether an instance runs that can be called.
func (u *Upstream) Runs() bool {
	u.mu.Lock()
	c, inst := u.conn, u.inst
	u.mu.Unlock()
	return c != nil && !c.ended() && !over(inst)
}

// begin starts an attempt. u.mu is held.
func (u *Upstream) begin() {
	a := &attempt{done: make(chan struct{})}
	u.attempt = a
	reason, words := u.reason, u.words // of the attempt before, until this one ends
	u.set(api.StateStarting, reason)
	u.words = words
	u.wg.Add(1)
	go func() {
		defer u.wg.Done()
		u.run(a)
	}()
}

func (u *Upstream) prepare(spec *driver.Spec) (err error) {
	if u.o.Prepare == nil {
		return nil
	}
	defer telemetry.Contain(u.o.Log, telemetry.InDriver, u.Server(), func(e error) { err = e })
	return u.o.Prepare(u.life, spec)
}

func (u *Upstream) set(state, reason string) {
	if u.state != state || u.reason != reason {
		u.state, u.reason, u.since = state, reason, time.Now()
	}
	u.words = ""
}

// alone reports whether one session alone has the instance.
func (u *Upstream) alone() bool { return u.o.Memory.Alone }

// run makes one attempt and, when it succeeds, stays until the connection or
// the instance ends.
func (u *Upstream) run(a *attempt) {
	var err error
	if !u.adopts() {
		err = u.fetch() // before it takes room, which others can use meanwhile
	}
	if err == nil {
		if err := u.takeRoom(); err != nil {
			u.noRoom(a, err)
			return
		}
	}
	// Preparing its state may take longer than starting it.
	spec := u.o.Spec
	u.mu.Lock()
	spec.Anew = u.anew || u.o.Memory.Kept == "" // without memory nothing is lost
	u.anew = false
	u.mu.Unlock()
	if err == nil {
		err = unprepared(u.prepare(&spec))
	}
	ctx, cancel := u.connecting(a)
	var inst driver.Instance
	var conn *Conn
	if err == nil {
		inst, conn, err = u.start(ctx, spec, a)
	}
	if errors.Is(err, errAnew) {
		cancel()
		err = u.fetch()
		if ctx, cancel = u.connecting(a); err == nil {
			inst, conn, err = u.start(ctx, spec, a)
		}
	}
	if errors.Is(err, errNotWanted) {
		cancel()
		u.freeRoom()
		close(a.done)
		return
	}
	if late := context.Cause(ctx); err != nil && late != nil && u.life.Err() == nil {
		err = driver.WithWords(withStray(late, strayOf(err)), driver.Words(err))
	}
	cancel()
	if err != nil {
		u.refetch(err)
		u.loseState(err)
	}

	if err == nil {
		u.fits(inst)
		u.applyLevel(conn) // before the first call, which may log
	}

	u.mu.Lock()
	u.attempt = nil
	if err == nil && u.closed {
		err = failure(api.KindRefused, u.Server(), false, "was removed or disabled")
		suspended, leaving := u.suspended, u.leaving && u.o.Keep != nil
		u.mu.Unlock()
		switch {
		case suspended:
			hello := conn.greeting()
			conn.leave()
			ctx, cancel := context.WithTimeout(context.Background(), suspendTime)
			if !u.suspend(ctx, inst, hello) {
				u.loseOwn(conn, false)
			}
			cancel()
		case leaving:
			conn.leave()
			u.leave(inst)
		default:
			conn.close()
			u.discard(inst)
			u.loseOwn(conn, false)
		}
		u.mu.Lock()
	}
	if err != nil {
		a.err = u.failed(err)
		u.failing = asOurs(a.err)
		there, closed := u.adopt != nil, u.closed // it may well run
		u.mu.Unlock()
		if !closed {
			u.o.Health.fails(u.Server(), u.Session(), a.err)
		}
		if !there {
			u.freeRoom()
		}
		close(a.done)
		return
	}
	u.inst, u.conn, u.spec, u.failing = inst, conn, spec, nil
	conn.parker, _ = inst.(driver.Parker)
	u.set(api.StateReady, "")
	conn.listen.subs = maps.Clone(u.subs)
	listen, again, uris := len(u.watchers) > 0, u.restarts > 0, conn.listen.subscribed()
	u.mu.Unlock()
	if listen { // before the calls that wait for the start
		conn.listen.watch(conn)
	}
	close(a.done)
	u.o.Health.starts(u.Server())
	if u.o.Ready != nil {
		u.o.Ready()
	}
	u.applyLevel(conn) // it may have changed before the connection was known
	ctx, cancel = context.WithTimeout(u.life, 30*time.Second)
	conn.resubscribe(ctx, uris)
	cancel()
	if again {
		u.changed()
	}
	u.stay(inst, conn)
}

// failed notes a failed attempt or a death. u.mu is held.
func (u *Upstream) failed(err error) error {
	var ours *api.Error
	if errors.Is(err, driver.ErrUnfit) {
		ours, err := u.unfit(err)
		if !u.closed { // the next call looks again
			u.next, u.lost = time.Time{}, nil
			u.set(api.StateFailed, Reason(ours))
		}
		return err
	}
	lost := false
	if !errors.As(err, &ours) {
		ours = failure(api.KindInfrastructure, u.Server(), !errors.Is(err, driver.ErrFinal), "%v", err)
		if errors.Is(err, driver.ErrLost) {
			ours.Kind, ours.Retryable = api.KindLost, false // the next attempt begins anew
			lost = true
		}
		ours.Own, ours.Final = u.alone(), !ours.Retryable && !lost
	} else if words := driver.Words(err); ours.Words == "" && words != "" {
		e := *ours
		e.Words, e.Own = words, u.alone()
		ours = &e
	}
	if u.closed {
		return ours
	}
	// The pause that the server asked for counts, up to maxPause.
	wait := max(u.pause.NextBackOff(), min(time.Duration(ours.RetryAfter)*time.Second, maxPause))
	u.next = time.Now().Add(wait)
	u.set(api.StateFailed, Reason(ours))
	u.words, u.final = ours.Words, errors.Is(err, driver.ErrFinal)
	if u.lost = nil; StateLost(err) {
		u.lost = err
		return err
	}
	if u.o.Eager || len(u.watchers) > 0 {
		u.retry = time.AfterFunc(wait, u.Kick)
	}
	if lost { // callers that wait for the start get this error, and none of their retries begins anew
		return goneError{ours}
	}
	return ours
}

// stay waits for the end of a connection and cleans up after it.
func (u *Upstream) stay(inst driver.Instance, conn *Conn) {
	defer close(conn.replaced)
	began := time.Now()
	var why error
	select {
	case <-inst.Done():
		why = inst.Err()
		if why == nil {
			why = errors.New("the server ended")
		}
	case <-conn.t.done():
		_, pipe := conn.t.(*streamTransport)
		why = deathOf(inst, pipe, conn.t.err())
	case <-u.life.Done():
		return // Close or Leave does the rest
	}
	lasted := time.Since(began)
	u.mu.Lock()
	if u.closed || u.conn != conn {
		u.mu.Unlock()
		return
	}
	u.mu.Unlock()
	why = u.explainEnd(inst, why)
	u.mu.Lock()
	if u.closed {
		u.mu.Unlock()
		return
	}
	u.inst = nil
	u.restarts++
	u.set(api.StateFailed, why.Error())
	u.words = driver.Words(why)
	u.mu.Unlock()
	u.lose(&conn.uses, why, false)
	u.o.Health.ends(u.Server(), u.Session(), why)
	// All of it must be gone before the next instance starts, which has the same
	// folder and handle. Until then u.conn keeps callers waiting.
	conn.close()
	u.discard(inst)
	u.freeRoom()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return
	}
	u.conn = nil
	if lasted > time.Minute {
		u.pause.Reset()
	}
	_ = u.failed(why)
}

// Started reports whether an instance was ever started, or is being.
func (u *Upstream) Started() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.conn != nil || u.attempt != nil || u.restarts > 0
}

// Status reports how the Upstream is doing.
func (u *Upstream) Status() Status {
	fetch, late := u.Fetching(), u.Unanswered("")
	u.mu.Lock()
	defer u.mu.Unlock()
	s := Status{State: u.state, Reason: u.reason, Words: u.words, Own: u.alone(), Since: u.since, Restarts: u.restarts, Instance: u.inst != nil}
	if u.conn != nil {
		s.Hello = u.conn.Hello()
	}
	if known, ok := u.inst.(driver.Identified); ok {
		p := known.Process()
		s.Process = &p
	}
	if late != nil && (s.State == api.StateReady || s.State == api.StateIdle) {
		s.State, s.Reason, s.Unlisted = api.StateFailed, Reason(late), true
	}
	if s.State == api.StateStarting && fetch != nil {
		s.State, s.Fetch = api.StateFetching, fetch
	}
	return s
}

// Logs returns the end of what the running instance wrote to standard error;
// nil when none runs.
func (u *Upstream) Logs(max int64) (io.ReadCloser, error) {
	u.mu.Lock()
	inst := u.inst
	u.mu.Unlock()
	if inst == nil {
		return nil, nil
	}
	return inst.Logs(max)
}
