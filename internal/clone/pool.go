package clone

import (
	"context"
	"sync"
)

// pool runs tasks that make other tasks, the newest first: depth before breadth
// keeps the number of open directories small.
type pool struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	wake    sync.Cond
	tasks   []func() error
	running int
}

func newPool(ctx context.Context) *pool {
	p := &pool{}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	p.wake.L = &p.mu
	return p
}

func (p *pool) add(task func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tasks = append(p.tasks, task)
	p.wake.Signal()
}

// run returns when no task is left, or after the first error when the running tasks
// have returned.
func (p *pool) run(workers int) error {
	defer p.cancel(nil)
	stop := context.AfterFunc(p.ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.wake.Broadcast()
	})
	defer stop()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(p.work)
	}
	wg.Wait()
	return context.Cause(p.ctx)
}

func (p *pool) work() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for len(p.tasks) == 0 && p.running > 0 && p.ctx.Err() == nil {
			p.wake.Wait()
		}
		if len(p.tasks) == 0 || p.ctx.Err() != nil {
			p.wake.Broadcast()
			return
		}
		last := len(p.tasks) - 1
		task := p.tasks[last]
		p.tasks[last] = nil
		p.tasks = p.tasks[:last]
		p.running++
		p.mu.Unlock()
		err := task()
		p.mu.Lock()
		p.running--
		if err != nil {
			p.cancel(err)
		}
	}
}
