package runner

import (
	"context"
	"time"

	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/agent/executor"
)

// idle is a persistent program between two runs of its session. Its goroutine ends the
// program, unless a run takes it over.
type idle struct {
	p        *program
	executor executor.Executor
	reader   executor.Turner
	print    string
	since    time.Time
	taken    chan struct{} // closed by the run that takes it over
	wanted   chan struct{} // has one place: it is to end
	gone     chan struct{} // closed when the goroutine has returned
	ending   bool          // with Runner.mu: no run may take it
}

func (i *idle) finish() { wake(i.wanted) }

// rest has the program wait for another run. It reports false where it may not.
func (w *work) rest() bool {
	r, session := w.r, w.c.Job.Session
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shut || r.idle[session] != nil || w.print == "" {
		return false
	}
	var oldest *idle
	waiting := 0
	for _, i := range r.idle {
		if i.ending {
			continue
		}
		if waiting++; oldest == nil || i.since.Before(oldest.since) {
			oldest = i
		}
	}
	if waiting >= max(r.me.Places, 1) {
		oldest.ending = true
		oldest.finish()
	}
	i := &idle{
		p: w.p, executor: w.executor, reader: w.reader.(executor.Turner), print: w.print, since: time.Now(),
		taken: make(chan struct{}), wanted: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	r.idle[session] = i
	r.work.Go(func() { r.wait(session, i) })
	return true
}

// wait waits with an idle program until a run takes it over or it is to end.
func (r *Runner) wait(session string, i *idle) {
	defer close(i.gone)
	late := time.NewTimer(r.o.Idle)
	defer late.Stop()
	select {
	case <-i.taken:
		return
	case <-i.p.over():
	case <-late.C:
	case <-i.wanted:
	}
	r.mu.Lock()
	if done(i.taken) {
		r.mu.Unlock()
		return
	}
	i.ending = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.idle, session)
		r.mu.Unlock()
	}()
	if err := i.p.stop(context.Background(), i.reader.Shutdown()); err != nil {
		r.o.Log.Warn("a program that waited for another run does not end", "session", session, "err", err)
	}
	r.revoke(session, i.p.pass().Run)
	if err := i.p.remove(); err != nil {
		r.o.Log.Warn("what is left of a program stays until the next start", "session", session, "err", err)
		i.p.leave()
	}
}

// takeOver returns the idle program of a session, which is the caller's then; nil for
// none. It waits for the end of one that is ending.
func (r *Runner) takeOver(session string) *idle {
	r.mu.Lock()
	i := r.idle[session]
	if i == nil {
		r.mu.Unlock()
		return nil
	}
	ending := i.ending
	if !ending {
		close(i.taken)
		delete(r.idle, session)
	}
	r.mu.Unlock()
	<-i.gone
	if ending {
		return nil
	}
	return i
}

// turn has the program of the session that waits begin another turn. It reports false
// where there is none, or none that would know what has changed: it is ended then, and
// the next program resumes what it did.
func (w *work) turn(x executor.Executor, filled blueprint.Filled) bool {
	i := w.r.takeOver(w.c.Job.Session)
	if i == nil {
		w.anew()
		return false
	}
	with := i.p.pass()
	err := w.describe(filled, with.Token)
	if err == nil && x == i.executor && fingerprint(w.job, filled) == i.print && !done(i.p.over()) {
		var input []byte
		if input, err = i.reader.Next(w.job); err == nil {
			err = i.p.next(w.c.Run, input)
		}
		if err == nil {
			w.p, w.reader, w.print = i.p, x.Read(w.job), i.print
			w.mask = w.masked(x, with.Token)
			return true
		}
		w.log.Warn("a program that waited did not take the run, and another is started", "err", err)
	}
	w.anew()
	if err := i.p.stop(context.Background(), i.reader.Shutdown()); err != nil {
		w.log.Warn("a program that waited for another run does not end", "err", err)
	}
	w.r.revoke(with.Session, with.Run)
	if err := i.p.remove(); err != nil {
		w.log.Warn("what is left of a program stays until the next start", "err", err)
		i.p.leave()
	}
	return false
}
