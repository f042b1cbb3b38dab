package runner

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/driver/folder"
)

// Options of New.
type Options struct {
	Queue  Queue
	Worlds Worlds
	Offer
	// Me needs an ID. The rest is filled in where it is empty; what it offers always.
	Me Description
	// Dir is the runner's own folder: programs of runs are in runs, the folders of sessions
	// in sessions.
	Dir string
	// Idle is how long a persistent program may wait for another run of its session; zero
	// for 10 m. As many as Concurrency may.
	Idle time.Duration
	// Values are what ${runner.*} stands for in a session, besides id, hostname and
	// orchestrator_mcp_url; nil for nothing.
	Values func(session string) map[string]string
	// API is the URL of the executor API for the token of a run; nil for none.
	API     func(token string) string
	Environ []string // of the gateway; see os.Environ
	Log     *slog.Logger
}

// An Offer is what a runner can do.
type Offer struct {
	Executors []executor.Executor
	Tags      []string
	// Concurrency is how many runs it works at, at once; zero for 16, and less for none but
	// those of an earlier start.
	Concurrency int
}

// Runner does runs. Its methods may be called at once.
type Runner struct {
	o    Options
	host *programs

	claims  context.Context // ends with the claiming
	noMore  context.CancelFunc
	closing context.Context // ends when the runs are to be left or stopped
	close   context.CancelFunc

	loop sync.WaitGroup // Run
	work sync.WaitGroup // runs, and programs that are idle

	mu        sync.Mutex
	me        Description
	executors map[string]executor.Executor
	offered   context.Context // ends with the next offer
	withdraw  context.CancelFunc

	keep   bool // programs go on when the runner closes
	shut   bool
	active map[string]*work // by run
	idle   map[string]*idle // by session
}

// closePatience is how long the end of a run is reported while the runner closes. What
// is not reported then is by the next one.
const closePatience = 30 * time.Second

// patience is a context that ends some time after the runner has begun to close.
func (r *Runner) patience() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	forget := context.AfterFunc(r.closing, func() {
		if sleep(ctx, closePatience) {
			cancel()
		}
	})
	return ctx, func() { forget(); cancel() }
}

// New makes a runner of a folder. The caller must Close it.
func New(o Options) (*Runner, error) {
	if o.Me.ID == "" {
		return nil, errors.New("the runner has no id")
	}
	o.Idle = cmp.Or(max(o.Idle, 0), 10*time.Minute)
	o.Me.Instance = cmp.Or(o.Me.Instance, rand.Text())
	if o.Me.Hostname == "" {
		o.Me.Hostname, _ = os.Hostname() // for demands, which name it or not
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Runner{o: o, me: o.Me, active: make(map[string]*work), idle: make(map[string]*idle)}
	if err := r.Change(o.Offer); err != nil {
		return nil, err
	}
	for _, dir := range []string{o.Dir, filepath.Join(o.Dir, "sessions")} {
		if err := folder.Make(dir); err != nil {
			return nil, err
		}
	}
	host, err := newPrograms(filepath.Join(o.Dir, "runs"), o.Environ, o.Log)
	if err != nil {
		return nil, err
	}
	r.host = host
	r.claims, r.noMore = context.WithCancel(context.Background())
	r.closing, r.close = context.WithCancel(context.Background())
	return r, nil
}

// Change changes what the runner can do. It counts for runs that are claimed from now on,
// and the others go on.
func (r *Runner) Change(o Offer) error {
	all := make(map[string]executor.Executor)
	for _, x := range o.Executors {
		if all[x.Name()] != nil {
			return fmt.Errorf("there are two executors %q", x.Name())
		}
		all[x.Name()] = x
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.executors = all
	r.me.Executors, r.me.Tags, r.me.Places = slices.Sorted(maps.Keys(all)), o.Tags, cmp.Or(o.Concurrency, 16)
	if r.withdraw != nil {
		r.withdraw()
	}
	r.offered, r.withdraw = context.WithCancel(context.Background())
	return nil
}

// claim claims a run for what the runner offers. It reports false where that has changed.
func (r *Runner) claim(ctx context.Context) (c Claim, ok bool, err error) {
	r.mu.Lock()
	me, offered := r.me, r.offered
	r.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(offered, cancel)()
	c, err = r.o.Queue.Claim(ctx, me)
	return c, err == nil || offered.Err() == nil, err
}

// executor is the one of a name; nil for none.
func (r *Runner) executor(name string) executor.Executor {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.executors[name]
}

// Run claims runs until ctx ends or the runner closes. Those that it has claimed go on
// until Close.
func (r *Runner) Run(ctx context.Context) {
	r.mu.Lock()
	if r.shut {
		r.mu.Unlock()
		return
	}
	r.loop.Add(1)
	r.mu.Unlock()
	defer r.loop.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.claims, cancel)()
	r.sweep(ctx)
	for pause := firstPause; ctx.Err() == nil; {
		c, ok, err := r.claim(ctx)
		if !ok {
			continue
		}
		if err != nil {
			if ctx.Err() == nil {
				r.o.Log.Warn("the runner could not claim a run and tries again", "err", err)
				sleep(ctx, pause)
				pause = min(2*pause, longestPause)
			}
			continue
		}
		pause = firstPause
		r.take(c)
	}
}

// sweep ends the programs that an earlier start has left and that do no run of this
// runner any more.
func (r *Runner) sweep(ctx context.Context) {
	var runs []string
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		var err error
		if runs, err = r.o.Queue.Claimed(ctx, r.o.Me.ID); err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		r.o.Log.Warn("the runner could not ask for its runs and tries again", "err", err)
		sleep(ctx, pause)
	}
	r.mu.Lock()
	known := make(map[string]bool, len(runs))
	for _, run := range runs {
		known[run] = true
	}
	for run := range r.active { // of this start
		known[run] = true
	}
	r.mu.Unlock()
	r.host.swept = func(p pass) { r.revoke(p.Session, p.Run) }
	gone, err := r.host.sweep(func(run string) bool { return known[run] })
	if len(gone) > 0 {
		r.o.Log.Info("removed what was left of runs that have ended", "count", len(gone))
	}
	if err != nil {
		r.o.Log.Warn("what is left of some runs that have ended stays", "err", err)
	}
}

// take does a run that was claimed.
func (r *Runner) take(c Claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shut {
		return // the next start of the runner claims it
	}
	w := &work{r: r, c: c, log: r.o.Log.With("run", c.Run, "session", c.Job.Session), over: make(chan struct{}), ready: make(chan struct{}), another: make(chan struct{})}
	before := r.active[c.Run] // a claim of the same run that was lost
	r.active[c.Run] = w
	r.work.Go(func() {
		defer func() {
			r.mu.Lock()
			if r.active[c.Run] == w {
				delete(r.active, c.Run)
			}
			r.mu.Unlock()
			close(w.over)
		}()
		if before != nil {
			<-before.over
		}
		w.do()
	})
}

// revoke ends the tokens that were made for a run.
func (r *Runner) revoke(session, run string) {
	ctx, cancel := context.WithTimeout(context.Background(), revokePatience)
	defer cancel()
	if err := r.o.Worlds.Revoke(ctx, session, run); err != nil {
		r.o.Log.Warn("the token of a run that has ended is good until its session closes", "run", run, "session", session, "err", err)
	}
}

const revokePatience = 10 * time.Second

// EndSession ends what there is of a session of an agent on this machine: a program that
// waits for another run, and the session's folder. It fails while a run goes on in it,
// and may be called again.
func (r *Runner) EndSession(ctx context.Context, session string) error {
	dir, err := r.sessionDir(session)
	if err != nil {
		return err
	}
	if w := r.workOf(session); w != nil {
		if !w.ending.Load() {
			return fmt.Errorf("run %s still goes on in session %s", w.c.Run, session)
		}
		select {
		case <-w.over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.mu.Lock()
	i := r.idle[session]
	r.mu.Unlock()
	if i != nil {
		i.finish()
		select {
		case <-i.gone:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := os.RemoveAll(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the folder of session %s: %w", session, err)
	}
	return nil
}

func (r *Runner) workOf(session string) *work {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.active {
		if w.c.Job.Session == session {
			return w
		}
	}
	return nil
}

// sessionDir is the folder of a session.
func (r *Runner) sessionDir(session string) (string, error) {
	if !filepath.IsLocal(session) || filepath.Base(session) != session || strings.HasPrefix(session, ".") {
		return "", fmt.Errorf("%q is no id of a session", session)
	}
	return filepath.Abs(filepath.Join(r.o.Dir, "sessions", session))
}

// Close ends the claiming and every run. With keep their programs go on, and the next
// start of the runner adopts them; otherwise they are stopped, and their runs are lost:
// the blueprint says whether they are done again. A run whose program has not been
// started is left to the next start.
func (r *Runner) Close(keep bool) {
	r.noMore()
	r.mu.Lock()
	first := !r.shut
	if first {
		r.shut, r.keep = true, keep
		r.close()
	}
	waiting := make([]*idle, 0, len(r.idle))
	for _, i := range r.idle {
		waiting = append(waiting, i)
	}
	r.mu.Unlock()
	for _, i := range waiting {
		i.finish()
	}
	r.loop.Wait()
	r.work.Wait()
	if first {
		r.host.Close()
	}
}
