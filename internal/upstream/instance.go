package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// start makes an instance, or adopts one, and greets its server.
func (u *Upstream) start(ctx context.Context, spec driver.Spec, a *attempt) (inst driver.Instance, conn *Conn, err error) {
	defer telemetry.Contain(u.o.Log, telemetry.InDriver, u.Server(), func(e error) { inst, conn, err = nil, nil, e })
	u.mu.Lock()
	adopt, opts := u.adopt, u.o.Conn
	u.adopt = nil
	opts.NoProbe = opts.NoProbe || u.noProbe
	opts.alone = u.alone()
	u.mu.Unlock()
	if adopt != nil {
		inst, conn, err := u.adoptOne(ctx, spec, adopt, opts)
		if err == nil {
			return inst, conn, nil
		}
		var there *notAdopted
		if errors.Is(err, errGivenUp) {
			return nil, nil, err
		}
		if !errors.Is(err, driver.ErrGone) && (u.life.Err() != nil || errors.As(err, &there)) {
			// Interrupted, or the driver could not tell: it may well run, with all its
			// memory. The next attempt, or the end of the Upstream, handles it.
			u.mu.Lock()
			u.adopt = adopt
			u.mu.Unlock()
			return nil, nil, err
		}
		u.o.Log.Info("instance not adopted", "server", u.Server(), "err", err)
		if !errors.Is(err, driver.ErrKept) {
			u.loseAdoption(adopt, err, false)
		}
		u.drop()
		if u.settle(a) {
			return nil, nil, errNotWanted
		}
		return nil, nil, errAnew
	}
	inst, err = u.o.Driver.Start(ctx, spec)
	if err != nil {
		var ours *api.Error
		if errors.As(err, &ours) && ours.Kind == api.KindLost {
			err = goneError{ours}
		}
		return nil, nil, u.explainEnd(nil, err)
	}
	hello, forked := u.greeted(inst)
	if opts.Hello = hello; hello != nil {
		opts.restored = true
	} else if p, ok := inst.(driver.Parker); ok { // it may take long to say hello, and is not idle then
		p.Acquire()
		defer p.Release()
	}
	if forked && hello != nil {
		hello.Callers = nil // those are callers of the original
	}
	learns := forked && (u.o.OnFork != nil || u.o.Front != nil)
	if hello == nil || learns {
		// It must not be adopted before its handshake, or before it knows that it
		// is a fork.
		err = u.keep(inst, nil)
	} else {
		said := *hello
		said.Asked = nil
		err = u.keep(inst, &said)
	}
	if err != nil {
		u.discard(inst)
		return nil, nil, err
	}
	link, err := u.dial(ctx, spec, driver.Body{Instance: inst, Fresh: hello == nil, Copy: forked})
	if err != nil {
		return nil, nil, u.startFailed(inst, true, hello == nil, err)
	}
	opts.why = u.diedOf(inst)
	conn, err = Connect(ctx, link, opts, u)
	if err != nil {
		if errors.Is(err, errProbe) && !opts.NoProbe && ctx.Err() == nil {
			u.discard(inst)
			u.mu.Lock()
			u.noProbe = true
			u.mu.Unlock()
			return u.start(ctx, spec, a)
		}
		return nil, nil, u.startFailed(inst, link.HTTP == nil, hello == nil, err)
	}
	if hello != nil {
		conn.uses.of(hello)
	}
	switch {
	case hello == nil:
		err = u.check(ctx, conn)
	case forked && u.o.OnFork != nil:
		err = u.notifyForked(ctx, conn)
	case learns:
	default:
		return inst, u.owned(inst, conn), nil
	}
	if err != nil {
		conn.close()
		return nil, nil, u.startFailed(inst, link.HTTP == nil, hello == nil, err)
	}
	said := conn.Hello()
	conn.uses.put(&said)
	if err := u.keep(inst, &said); err != nil {
		conn.close()
		u.discard(inst)
		return nil, nil, err
	}
	return inst, u.owned(inst, conn), nil
}

// dial opens the link of an instance, through the server's front where it has one.
func (u *Upstream) dial(ctx context.Context, spec driver.Spec, body driver.Body) (driver.Link, error) {
	link, err := body.Dial(ctx)
	if err != nil || u.o.Front == nil {
		return link, err
	}
	if link.Stream == nil {
		return link, driver.Final(errors.New("its program speaks HTTP, and a built-in server speaks with it over its standard input and output alone; remove port and transport"))
	}
	body.Stream = link.Stream
	if l, ok := u.o.Driver.(driver.Looker); ok {
		l.Look(ctx, spec)
	}
	return u.o.Front.Front(ctx, spec, body)
}

// startFailed ends an instance that can't be used and says why, with its output. With
// anew it was started with an empty memory.
func (u *Upstream) startFailed(inst driver.Instance, pipe, anew bool, err error) error {
	stray := strayOf(err)
	if err = deathOf(inst, pipe, err); anew {
		err = u.neverBegan(inst, err)
	}
	err = u.explainEnd(inst, withStray(err, stray))
	if anew && stray != "" && over(inst) && driver.Words(err) == "" {
		err = driver.Final(err) // it printed something and ended, and says nothing of an error
	}
	u.discard(inst)
	return err
}

// neverBegan is the error of an instance that was started with an empty memory and
// never answered: it had no memory to lose, even if its driver reports a loss. If
// files are gone, the next start says so.
func (u *Upstream) neverBegan(inst driver.Instance, err error) error {
	var ours *api.Error
	if errors.As(err, &ours) {
		if ours.Kind != api.KindLost {
			return err
		}
		e := *ours
		e.Kind, e.Retryable = api.KindInfrastructure, true
		return driver.WithWords(&e, driver.Words(err))
	}
	if !over(inst) {
		return err
	}
	text := strings.TrimLeft(strings.TrimPrefix(cause(err.Error()), fmt.Sprintf("server %q", u.o.Spec.Server)), ": ")
	return driver.WithWords(errors.New("did not start: "+text), driver.Words(err))
}

// owned has the instance's handle record a further handshake, and the instance's
// callers, while it is the one that runs.
func (u *Upstream) owned(inst driver.Instance, conn *Conn) *Conn {
	record := func(what string) func() {
		return func() {
			u.keeping.Lock()
			defer u.keeping.Unlock()
			u.mu.Lock()
			gone := u.inst != inst
			u.mu.Unlock()
			if gone {
				return
			}
			hello := conn.Hello()
			conn.uses.put(&hello)
			if err := u.put(inst, &hello); err != nil {
				u.o.Log.Warn(what+" not recorded", "server", u.Server(), "err", err)
			}
		}
	}
	conn.renewed = record("new session with a server")
	first := record("first call of a server")
	conn.called = func(session string) {
		m := &u.o.Memory
		switch {
		case u.o.Keep != nil:
			first()
		case m.Called != nil && !(m.Reached && conn.sessionless()):
			m.Called(session)
		}
	}
	conn.inst, conn.before, conn.forgot = inst, func(req *Request) error { return u.before(conn, req) }, func() bool { return u.forget(conn) }
	return conn
}

// settle goes back to idle if no caller needs an instance yet: after a restart of
// the machine all of them are gone, and starting them all would be a storm.
func (u *Upstream) settle(a *attempt) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if a.wanted || u.o.Eager || u.closed || len(u.watchers) > 0 {
		return false
	}
	u.attempt = nil
	u.set(api.StateIdle, "")
	return true
}

// reasonWait and memoryWait are how long a driver may take to see why an instance ended
// whose stream did; the second is where its memory is lost with it.
const (
	reasonWait = 2 * time.Second
	memoryWait = 5 * time.Second
)

// diedOf says what an instance died of, if it has and that is known soon: a pipe only
// tells that it broke. If the instance's memory is lost too, it waits for the reason.
func (u *Upstream) diedOf(inst driver.Instance) func(stop <-chan struct{}) error {
	wait := reasonWait
	if u.o.Driver.Info().Memory {
		wait = memoryWait
	}
	return func(stop <-chan struct{}) error {
		select {
		case <-inst.Done():
			return u.endOf(inst)
		default:
		}
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-inst.Done():
			return u.endOf(inst)
		case <-stop:
		case <-timer.C:
		}
		return nil
	}
}

// endOf is what an instance that has ended died of; nil after its Stop.
func (u *Upstream) endOf(inst driver.Instance) error {
	why := inst.Err()
	if why == nil {
		return nil
	}
	return u.withHint(u.logOf(inst, maxHinted), why)
}

// deathOf prefers the instance's own cause of death to the error of its connection,
// which may be a pipe.
func deathOf(inst driver.Instance, pipe bool, err error) error {
	if errors.Is(err, errProbe) {
		return err
	}
	wait := 100 * time.Millisecond
	switch {
	case pipe && errors.Is(err, io.EOF):
		wait = memoryWait // it is as dead as its pipe, and an engine may take a while to say so
	case pipe:
		wait = time.Second
	}
	select {
	case <-inst.Done():
		if why := inst.Err(); why != nil {
			return why
		}
	case <-time.After(wait):
	}
	return err
}

func (u *Upstream) adoptOne(ctx context.Context, spec driver.Spec, a *Adoption, opts ConnOptions) (driver.Instance, *Conn, error) {
	inst, err := u.o.Driver.Adopt(ctx, a.Handle, u.o.Log)
	if err != nil {
		return nil, nil, &notAdopted{err}
	}
	var hello Hello
	if len(a.Hello) == 0 || json.Unmarshal(a.Hello, &hello) != nil || hello.Version == "" {
		u.discard(inst)
		return nil, nil, errors.New("it had not finished its handshake")
	}
	opts.Hello, opts.why = &hello, u.diedOf(inst)
	link, err := u.dial(ctx, spec, driver.Body{Instance: inst})
	if err != nil {
		return nil, nil, u.giveUp(inst, a, err)
	}
	conn, err := Connect(ctx, link, opts, u)
	if err != nil {
		return nil, nil, u.giveUp(inst, a, err)
	}
	conn.uses.of(&hello)
	return inst, u.owned(inst, conn), nil
}

// notAdopted is the error of a driver that did not get hold of an instance.
type notAdopted struct{ error }

func (e *notAdopted) Unwrap() error { return e.error }

// errGivenUp reports that an instance was released in order while it was being
// adopted.
var errGivenUp = errors.New("broken off")

// giveUp releases an instance that can't be used: it ends, unless the attempt was
// only interrupted and the instance is to be left, or suspended.
func (u *Upstream) giveUp(inst driver.Instance, a *Adoption, err error) error {
	u.mu.Lock()
	leaving, suspended, why := u.leaving, u.suspended, u.ending
	u.mu.Unlock()
	switch {
	case leaving:
		u.leave(inst)
		return err
	case suspended:
		ctx, cancel := context.WithTimeout(context.Background(), suspendTime)
		defer cancel()
		if !u.suspend(ctx, inst, a.Hello) {
			u.loseAdoption(a, errors.New(why), true)
		}
		return fmt.Errorf("%w: %w", errGivenUp, err)
	}
	u.discard(inst)
	return err
}

// endUnadopted ends an instance that was to be adopted but never was.
func (u *Upstream) endUnadopted(a *Adoption, end func(driver.Instance, json.RawMessage) (kept bool)) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	u.mu.Lock()
	why := u.ending
	u.mu.Unlock()
	inst, err := u.o.Driver.Adopt(ctx, a.Handle, u.o.Log)
	switch {
	case err == nil:
		u.saveUnadopted(inst)
		if !end(inst, a.Hello) && why != "" {
			u.loseAdoption(a, errors.New(why), true)
		}
	case errors.Is(err, driver.ErrGone):
		if why != "" && !errors.Is(err, driver.ErrKept) {
			u.loseAdoption(a, err, false)
		}
		u.drop()
	default: // the handle stays, so that the next gateway can try
		u.o.Log.Warn("instance not stopped", "server", u.Server(), "err", err)
	}
}

// saveTime bounds how long the front of an instance that ends may take to save.
const saveTime = time.Minute

// saveUnadopted has a front write into the state what its body only has in memory, where
// that memory is not kept.
func (u *Upstream) saveUnadopted(inst driver.Instance) {
	if _, kept := inst.(driver.Suspender); kept || u.o.Front == nil || over(inst) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), saveTime)
	defer cancel()
	link, err := u.dial(ctx, u.o.Spec, driver.Body{Instance: inst})
	if err == nil {
		if link.Save != nil {
			err = link.Save(ctx)
		}
		err = errors.Join(err, link.Stream.Close())
	}
	if err != nil {
		u.o.Log.Warn("what a server had in memory was not saved", "server", u.Server(), "session", u.o.Spec.Session, "err", err)
	}
}

// keep records an instance, with what its server said if it did.
func (u *Upstream) keep(inst driver.Instance, hello *Hello) error {
	u.keeping.Lock()
	defer u.keeping.Unlock()
	return u.put(inst, hello)
}

func (u *Upstream) put(inst driver.Instance, hello *Hello) error {
	if u.o.Keep == nil {
		return nil
	}
	var raw json.RawMessage
	if hello != nil {
		b, err := json.Marshal(hello)
		if err != nil {
			return err
		}
		raw = b
	}
	if err := u.o.Keep(inst.Handle(), raw); err != nil {
		return fmt.Errorf("recording the instance: %w", err)
	}
	return nil
}

func (u *Upstream) drop() {
	u.keeping.Lock()
	defer u.keeping.Unlock()
	if u.o.Drop != nil {
		u.o.Drop()
	}
}

// discard ends an instance and forgets its handle.
func (u *Upstream) discard(inst driver.Instance) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := inst.Stop(ctx)
	if err == nil {
		u.drop()
		return
	}
	u.o.Log.Warn("instance not stopped", "server", u.Server(), "err", err)
	u.mu.Lock()
	closed := u.closed // else the next attempt uses its folder and its handle
	u.mu.Unlock()
	if closed && u.o.Unended != nil {
		u.o.Unended(func(ctx context.Context) error {
			err := inst.Stop(ctx)
			if err == nil {
				u.drop()
			}
			return err
		})
	}
}
