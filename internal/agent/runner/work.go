package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// Why a run does not go on by itself.
var (
	errStopped = errors.New("the run is to be stopped")
	errLeft    = errors.New("the runner closes, and the program goes on")
	errClosed  = errors.New("the runner closes")
	errOverdue = errors.New("the run has taken as long as it may")
)

// work is one run that this runner has claimed. do is its goroutine.
//
//	adopt ─ no program, and none was there ─▶ start ─▶ follow ─▶ report the end ─▶ remove
//	   └──── a program ─────────────────────────────────▲  │
//	                                                       └ of a turn ─▶ idle
//
// Stopping, a lost claim and the closing end ctx, with the reason as its cause. The first
// reason decides what becomes of the run.
type work struct {
	r     *Runner
	c     Claim
	log   *slog.Logger
	lease *lease
	over  chan struct{} // closed when nothing of it is left in this runner
	ready chan struct{} // closed when its program is there
	// another is closed when it has none of an earlier run.
	another chan struct{}

	posting sync.Mutex
	posts   *posts // of the program; nil where it posts nothing

	// ending says that its end is being reported, or has been.
	ending atomic.Bool

	// Of do alone.
	ctx      context.Context
	p        *program
	job      executor.Job
	executor executor.Executor
	reader   executor.Reader
	print    string // of what the program was started with
	mask     *mask
	minted   bool // a token for it, or nearly
}

func (w *work) do() {
	w.mask = newMask(w.c.Blueprint.Secrets)
	w.lease = newLease(w.r.o.Queue, w.c, w.log)
	defer w.lease.end()
	ctx, cancel := context.WithCancelCause(context.Background())
	watched := make(chan struct{})
	overdue, forget := w.overdue()
	defer forget()
	go func() {
		defer close(watched)
		select {
		case <-w.lease.stop:
			cancel(errStopped)
		case <-w.lease.lost:
			cancel(ErrStale)
		case <-overdue:
			cancel(errOverdue)
		case <-w.r.closing.Done():
			w.r.mu.Lock()
			defer w.r.mu.Unlock()
			if w.r.keep {
				cancel(errLeft)
			} else {
				cancel(errClosed)
			}
		case <-ctx.Done():
		}
	}()
	defer func() {
		cancel(nil)
		<-watched
	}()
	w.ctx = ctx
	defer telemetry.Contain(w.log, telemetry.InRunner, "run "+w.c.Run, w.panicked)
	w.live()
}

// overdue tells when the run has taken as long as it may; never, where that is no matter.
func (w *work) overdue() (<-chan time.Time, func() bool) {
	if w.c.Time <= 0 {
		return nil, func() bool { return false }
	}
	left := w.c.Time
	if !w.c.Began.IsZero() {
		left -= time.Since(w.c.Began)
	}
	t := time.NewTimer(max(left, 0))
	return t.C, t.Stop
}

// late is the error of a run that has taken as long as it may.
func (w *work) late() *api.Error {
	return &api.Error{Kind: api.KindTimeout, Message: fmt.Sprintf("the run took longer than %s and was ended; limits.time of the blueprint, or agents.time of the config, says how long it may take", config.Brief(w.c.Time))}
}

// panicked ends a run in which the runner itself has failed.
func (w *work) panicked(err error) {
	if w.p != nil {
		if err := w.halt(nil); err != nil {
			w.log.Error("the program of a run does not end", "err", err)
		}
	}
	w.end(Report{Error: failure("", err)}, false)
}

// live does the run.
func (w *work) live() {
	for {
		told, err := w.begin()
		if err != nil {
			w.refused(err)
			return
		}
		w.hears()
		if !w.follow(told) {
			return
		}
		w.log.Info("the program that waited ended before it read the run, and another is started")
	}
}

// refused ends a run whose program has not been started, or is gone.
func (w *work) refused(err error) {
	why := failure("", err)
	switch cause := context.Cause(w.ctx); {
	case errors.Is(cause, ErrStale), errors.Is(err, ErrStale):
		if w.p != nil {
			w.remove(nil)
			return
		}
		w.clean()
	case errors.Is(cause, errStopped), errors.Is(err, errStopped):
		w.end(Report{}, false)
	case errors.Is(cause, errOverdue):
		w.end(Report{Error: w.late()}, false)
	case cause != nil && w.p == nil && why.Kind != api.KindLost: // nothing was done yet
		w.revoke()
		w.clean()
	default:
		w.end(Report{Error: why}, false)
	}
}

// clean removes what there may be of a run that has no program.
func (w *work) clean() {
	if err := w.r.host.discard(w.c.Run); err != nil {
		w.log.Warn("what is left of a run stays until the next start", "err", err)
	}
}

// follow follows the program to the end of the run. It reports true where the program had
// ended by itself before it heard of the run: nothing of it was done.
func (w *work) follow(told int) (again bool) {
	sending, cancel := w.r.patience()
	defer cancel()
	box := newOutbox(sending, w.lease.report)
	defer box.leave()
	var shutdown []byte
	if t, ok := w.reader.(executor.Turner); ok {
		shutdown = t.Shutdown()
	}
	if !w.c.Running {
		box.started()
	}
	following, leave := context.WithCancel(context.Background())
	defer leave()
	followed, watched := make(chan struct{}), make(chan struct{})
	var cause, stuck error // why the program was left or halted, and that it does not end
	go func() {
		defer close(watched)
		select {
		case <-followed:
			return
		case <-w.ctx.Done():
		}
		if done(followed) || done(w.p.over()) {
			return // it has ended by itself
		}
		if cause = context.Cause(w.ctx); errors.Is(cause, errLeft) {
			leave()
			box.leave()
		} else if stuck = w.halt(shutdown); stuck != nil {
			leave() // it would be followed for ever
		}
	}()
	out, err := w.p.follow(following, w.reader, told, func(events []executor.Event) error { return box.add(w.mask.events(events)) })
	close(followed)
	<-watched
	if errors.Is(cause, errLeft) {
		w.p.leave()
		return false
	}
	if err == nil && cause == nil && out.Err != nil && out.Quiet && w.p.deaf() {
		if rest, sent := box.close(); sent == nil {
			w.c.Running = !rest.Running
			w.revoke()
			w.remove(nil)
			return true
		}
	}
	if err != nil {
		out = ending{Err: failure("follow the executor", err)}
	}
	if stuck == nil && !out.Goes {
		stuck = w.halt(shutdown)
	}
	switch rest, sent := box.close(); {
	case errors.Is(cause, ErrStale) || errors.Is(sent, ErrStale):
		if stuck == nil {
			stuck = w.halt(shutdown)
		}
		if with := w.p.pass(); with.Run != w.c.Run { // the run's own may be another runner's by now
			w.r.revoke(with.Session, with.Run)
		}
		w.remove(stuck)
	case sent != nil: // the runner closes, and the queue is away
		w.p.leave()
	default:
		w.conclude(rest, out, cause, stuck)
	}
	return false
}

// halt ends the program, unless it has ended.
func (w *work) halt(shutdown []byte) error {
	if done(w.p.over()) {
		return nil
	}
	return w.p.stop(context.Background(), shutdown)
}

// conclude reports what a run has come to, with the last of its events.
func (w *work) conclude(rest Report, out ending, cause, stuck error) {
	result := w.mask.result(out.Result)
	if out.Err == nil || result.Text != "" || len(result.Data) > 0 {
		rest.Result = &result
	}
	switch {
	case errors.Is(cause, errStopped):
		if out.Err != nil || result.Text == "" && len(result.Data) == 0 {
			rest.Result = nil // the coordinator says that it was stopped
		}
	case errors.Is(cause, errOverdue):
		rest.Result, rest.Error = nil, w.late()
	case errors.Is(cause, errClosed):
		rest.Result = nil
		rest.Error = &api.Error{Kind: api.KindLost, Message: "its runner was ended before it; what it did until then may have taken effect"}
	case out.Err != nil:
		rest.Error = failure("", out.Err)
	}
	if stuck != nil {
		w.log.Error("the program of a run does not end", "err", stuck)
	}
	w.end(rest, out.Goes && cause == nil && !done(w.p.over()))
}

// end reports the end of the run and removes what is left of it, or lets a persistent
// program wait for the next.
func (w *work) end(rep Report, goes bool) {
	rep.Ended = true
	w.ending.Store(true)
	rep.Error = w.mask.failure(rep.Error)
	if !goes {
		w.revoke() // before it is told, so that a kill in between leaves no token
	}
	ctx, cancel := w.r.patience()
	defer cancel()
	switch err := w.lease.report(ctx, rep); {
	case err != nil && !errors.Is(err, ErrStale):
		w.log.Warn("the end of a run is reported by the next start of the runner", "err", err)
		if w.p != nil {
			w.p.leave()
		}
	case err == nil && goes && w.rest():
	case w.p == nil:
		w.clean()
	default:
		var stuck error
		if goes {
			stuck = w.halt(w.reader.(executor.Turner).Shutdown())
			w.revoke()
		}
		w.remove(stuck)
	}
}

// revoke ends the token of the program.
func (w *work) revoke() {
	switch {
	case w.p != nil:
		w.r.revoke(w.c.Job.Session, w.p.pass().Run)
	case w.minted || w.c.Adopted:
		w.r.revoke(w.c.Job.Session, w.c.Run)
	}
}

// remove removes what is left of a program that has ended. One that could not be ended
// stays for the next start.
func (w *work) remove(stuck error) {
	if stuck != nil {
		w.p.leave()
		return
	}
	if err := w.p.remove(); err != nil {
		w.log.Warn("what is left of a run stays until the next start", "err", err)
		w.p.leave()
	}
}

// failure is an error as it is reported.
func failure(doing string, err error) *api.Error {
	out := &api.Error{Kind: api.KindInfrastructure, Message: err.Error()}
	if e := new(api.Error); errors.As(err, &e) {
		c := *e
		out = &c
		out.Message = err.Error()
	}
	if doing != "" {
		out.Message = fmt.Sprintf("%s: %s", doing, out.Message)
	}
	return out
}
