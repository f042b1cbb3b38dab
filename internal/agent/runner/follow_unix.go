//go:build linux || darwin

package runner

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// A follower wakes when the system tells of a change. The slow look is for what the
// system does not tell: it forgets when there is too much. The quick one is for a system
// that tells nothing, such as one without watches left.
const (
	slowLook  = time.Second
	quickLook = 50 * time.Millisecond
)

// follow reads what the program has written in this turn, from its beginning, and what
// it writes until the turn or the program ends. It reports the events but the first
// ones that were told already: the same output makes the same events again, in the same
// order. An error is one of ctx or of report. One at a time may follow.
func (p *program) follow(ctx context.Context, r executor.Reader, told int, report func([]executor.Event) error) (out ending, err error) {
	defer telemetry.Contain(p.h.log, telemetry.InRunner, "output of an executor", func(e error) { out, err = ending{Err: e}, nil })
	f, err := p.follower(r, told, report)
	if err != nil {
		return ending{}, err
	}
	defer f.close()
	changed, stop, ok := p.h.notices.watch(p.dir)
	defer stop()
	every := slowLook
	if !ok {
		every = quickLook
	}
	look := time.NewTicker(every)
	defer look.Stop()
	if damage, err := f.again(); err != nil || damage != nil {
		return ending{Err: damage}, err
	}
	for f.over == nil {
		if err := ctx.Err(); err != nil {
			return ending{}, err
		}
		over := done(p.ended) // asked before the reading: what it has written is there
		if over {
			p.posts.set(true)
		}
		if p.tooMuch() != nil {
			p.kill()
		}
		more, err := f.forward(over)
		switch {
		case err != nil:
			return ending{}, err
		case more, f.over != nil:
			continue
		case over:
			return f.end()
		}
		select {
		case <-changed:
		case <-p.ended:
		case <-look.C:
		case <-ctx.Done():
		}
	}
	// What was posted since the last line is of this turn as well.
	p.posts.set(true)
	_, err = f.heard()
	return *f.over, err
}

// follower is one reading of a turn.
type follower struct {
	p              *program
	turn           turn
	r              executor.Reader
	report         func([]executor.Event) error
	told           int
	stdout, stderr *tap
	posted         *tap
	order          *order

	batch []executor.Event
	seen  int  // events so far
	full  bool // more are left out
	long  int  // lines of standard output that were too long
	over  *ending
}

func (p *program) follower(r executor.Reader, told int, report func([]executor.Event) error) (_ *follower, err error) {
	p.mu.Lock()
	t := p.rec.Turn
	p.mu.Unlock()
	p.at.begin(t)
	f := &follower{p: p, turn: t, r: r, told: told, report: report}
	lim := p.h.limits
	if f.stdout, err = openTap(filepath.Join(p.dir, outputName), &p.at.stdout, lim.output, lim.line); err != nil {
		return nil, err
	}
	if f.stderr, err = openTap(filepath.Join(p.dir, errorName), &p.at.stderr, lim.errors, lim.line); err != nil {
		f.stdout.close()
		return nil, err
	}
	if f.posted, err = openPosted(p.dir, &p.at.posted, lim); err != nil {
		f.stdout.close()
		f.stderr.close()
		return nil, err
	}
	if f.order, err = openOrder(filepath.Join(p.dir, orderName)); err != nil {
		f.stdout.close()
		f.stderr.close()
		f.posted.close()
		return nil, err
	}
	return f, nil
}

func (f *follower) close() {
	f.stdout.close()
	f.stderr.close()
	f.posted.close()
	f.order.close()
}

// again reads what was read before, in the order of then. Damage says that the output
// has less than was read of it.
func (f *follower) again() (damage, err error) {
	for _, step := range f.order.steps {
		t, line := f.stream(step.stream)
		for t.at.pos < step.to && f.over == nil {
			more, err := t.read(step.to, true, line)
			if err != nil {
				return nil, err
			}
			if !more {
				return &api.Error{Kind: api.KindInfrastructure, Message: "the end of what the executor wrote is lost, as after a power cut"}, nil
			}
		}
		if err := f.flush(); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (f *follower) stream(name byte) (*tap, func([]byte, int64) bool) {
	switch name {
	case streamErr:
		return f.stderr, f.errLine
	case streamPosted:
		return f.posted, f.postedLine
	}
	return f.stdout, f.outLine
}

// forward reads what was posted and a piece of each other stream. It reports false where
// there was nothing. What was posted before a line was printed is read before it, since the
// line may end the turn.
func (f *follower) forward(over bool) (bool, error) {
	st, err := f.stdout.f.Stat()
	if err != nil {
		return false, fmt.Errorf("read the output of the run: %w", err)
	}
	heard, err := f.heard()
	if err != nil {
		return false, err
	}
	errs, err := f.piece(streamErr, -1, over)
	if err != nil {
		return false, err
	}
	out, err := f.piece(streamOut, st.Size(), over)
	return heard || errs || out, err
}

// heard reads what was posted until now.
func (f *follower) heard() (bool, error) {
	st, err := f.posted.f.Stat()
	if err != nil {
		return false, fmt.Errorf("read what the program posts: %w", err)
	}
	for progress := false; ; progress = true {
		if more, err := f.piece(streamPosted, st.Size(), false); err != nil || !more {
			return progress, err
		}
	}
}

// piece reads a piece of a stream, up to a place or to what is there. It notes how far it
// has come before it reports what it has found.
func (f *follower) piece(name byte, to int64, all bool) (bool, error) {
	t, line := f.stream(name)
	from := t.at.pos
	more, err := t.read(to, all, line)
	if err != nil || t.at.pos == from {
		return more, err
	}
	if err := f.order.note(step{name, t.at.pos}); err != nil {
		return false, err
	}
	return more, f.flush()
}

// outLine takes a line of standard output, or the length of one that is too long. It
// reports whether the turn is over with it.
func (f *follower) outLine(line []byte, long int64) bool {
	if long > 0 {
		f.long++
		f.add(executor.Stderr(fmt.Sprintf("a line of %d bytes on standard output is longer than %d bytes and was left out", long, f.p.h.limits.line)))
		return false
	}
	for _, e := range f.r.Line(line) {
		f.add(e)
	}
	t, ok := f.r.(executor.Turner)
	if !ok {
		return false
	}
	result, err, ok := t.Turn()
	if ok {
		f.over = &ending{Result: result, Err: err, Goes: true}
	}
	return ok
}

func (f *follower) postedLine(line []byte, _ int64) bool {
	if h, ok := f.r.(executor.Hearer); ok {
		for _, e := range h.Hear(line) {
			f.add(e)
		}
	}
	return false
}

func (f *follower) errLine(line []byte, long int64) bool {
	text := string(line)
	if long > 0 {
		text = fmt.Sprintf("a line of %d bytes on standard error is longer than %d bytes and was left out", long, f.p.h.limits.line)
	}
	f.add(executor.Stderr(text))
	return false
}

// add puts an event into the batch, unless it was told, or there are too many. One that
// names the conversation is never too many.
func (f *follower) add(e executor.Event) {
	lim := f.p.h.limits
	if f.seen >= lim.events && e.ExecutorSession == "" {
		if f.full {
			return
		}
		f.full = true
		e = executor.Stderr(fmt.Sprintf("the program has told more than %d events; the rest is left out", lim.events))
	}
	if f.seen++; f.seen <= f.told {
		return
	}
	if len(e.Data) > lim.event {
		session := e.ExecutorSession
		e = executor.Stderr(fmt.Sprintf("an event of the type %s has %d bytes of data, more than %d, and was left out", e.Type, len(e.Data), lim.event))
		e.ExecutorSession = session
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	f.batch = append(f.batch, e)
}

func (f *follower) flush() error {
	if len(f.batch) == 0 {
		return nil
	}
	batch := f.batch
	f.batch = nil
	return f.report(batch)
}

// end has the Reader make the result of a program that has ended.
func (f *follower) end() (ending, error) {
	if err := f.p.tooMuch(); err != nil {
		return ending{Err: err}, nil
	}
	exit := f.p.exit
	exit.Long = f.long
	var err error
	lim := f.p.h.limits
	if exit.Stdout, exit.Cut, err = head(f.stdout.f, f.turn.Stdout, lim.kept); err != nil {
		return ending{}, err
	}
	if exit.Stderr, err = tail(f.stderr.f, f.turn.Stderr, lim.tail); err != nil {
		return ending{}, err
	}
	result, err := f.r.End(exit)
	return ending{Result: result, Err: err, Quiet: f.seen == 0}, nil
}

// tooMuch is the error of a program that has written too much.
func (p *program) tooMuch() error {
	for _, out := range []struct {
		name, what string
		limit      int64
	}{{outputName, "standard output", p.h.limits.output}, {errorName, "standard error", p.h.limits.errors}} {
		if st, err := os.Stat(filepath.Join(p.dir, out.name)); err == nil && st.Size() > out.limit {
			return &api.Error{Kind: api.KindTool, Message: fmt.Sprintf("the executor wrote more than %d bytes to its %s and was ended; have it write less", out.limit, out.what)}
		}
	}
	return nil
}

// head reads so many bytes from a place on, and reports whether there are more.
func head(f *os.File, from int64, most int) ([]byte, bool, error) {
	b, err := io.ReadAll(io.NewSectionReader(f, from, int64(most)+1))
	if err != nil {
		return nil, false, fmt.Errorf("read the output of the run: %w", err)
	}
	if len(b) > most {
		return b[:most], true, nil
	}
	return b, false, nil
}

// tail reads the last bytes behind a place.
func tail(f *os.File, from int64, most int) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the output of the run: %w", err)
	}
	from = max(from, st.Size()-int64(most))
	b, _, err := head(f, from, most)
	return b, err
}
