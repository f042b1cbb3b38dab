package rlm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// interruptGrace is how long code may take to end when it was interrupted. Then its worker
// is restarted.
const interruptGrace = 5 * time.Second

// A call is one request to a kernel.
type call struct {
	branch int64
	over   chan struct{} // closed when done or died is set
	// keepers is whether it is for the keeper, and not for the worker.
	keepers bool

	mu     sync.Mutex
	output func(text string, err bool) // must not wait; nil for none
	done   json.RawMessage
	died   *died
}

// take takes an event of the call, and reports whether that was its end.
func (c *call) take(e event) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.over:
		return false
	default:
	}
	switch {
	case e.Died != nil && c.keepers:
		return false // which the keeper answers in any case
	case e.Died != nil:
		if c.output != nil {
			c.output(e.Stdout, false)
			c.output(e.Stderr, true)
		}
		c.died = &died{status: *e.Died, reset: e.Reset}
		close(c.over)
		return true
	case e.Done != nil:
		c.done = e.Done
		close(c.over)
	case c.output != nil && e.Stdout != "":
		c.output(e.Stdout, false)
	case c.output != nil && e.Stderr != "":
		c.output(e.Stderr, true)
	}
	return false
}

// do makes a request and returns what came of it. Calls run in order; waiting for the
// turn does not count toward the timeout. The end of ctx or of the time interrupts the
// call, and restarts the worker where that does not help: restarted says so.
func (b *branch) do(ctx context.Context, timeout time.Duration, request map[string]any, output func(string, bool)) (done json.RawMessage, restarted bool, err error) {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return nil, false, ctx.Err()
	case <-b.k.life.Done():
		return nil, false, context.Cause(b.k.life)
	}
	return b.held(ctx, timeout, request, output)
}

// held is do for a caller that has the turn.
func (b *branch) held(ctx context.Context, timeout time.Duration, request map[string]any, output func(string, bool)) (done json.RawMessage, restarted bool, err error) {
	k := b.k
	c := &call{branch: b.n, over: make(chan struct{}), output: output}
	id, over := k.begin(c)
	defer over()
	request["id"] = id
	// A request that is cut off would leave half a line: it is sent whole.
	if err := b.write(k.life, request); err != nil {
		return nil, false, err
	}
	// Who has the turn finds the worker idle: the code runs from now on.
	var late <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-c.over:
	case <-k.life.Done():
		return nil, false, context.Cause(k.life)
	case <-late:
		err = context.DeadlineExceeded
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		restarted = b.stop(c)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.died != nil && !restarted {
		return nil, false, c.died
	}
	return c.done, restarted, err
}

// begin registers a call, so that it hears of what concerns it until over is called.
func (k *kernel) begin(c *call) (id int64, over func()) {
	id = k.number.Add(1)
	k.mu.Lock()
	k.calls[id] = c
	k.mu.Unlock()
	return id, func() {
		k.mu.Lock()
		delete(k.calls, id)
		k.mu.Unlock()
	}
}

// write sends something to the branch.
func (b *branch) write(ctx context.Context, message any) error {
	if b.n == 0 {
		return b.k.write(ctx, message)
	}
	line, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return b.k.send(ctx, append(fmt.Appendf(nil, "@%d ", b.n), line...))
}

// stop interrupts a call, and restarts the worker, or ends the branch, where the call
// does not end by that.
func (b *branch) stop(c *call) (restarted bool) {
	left := b.n == 0 && b.k.left != nil && b.k.left()
	_ = b.k.write(b.k.life, keeper{Keeper: "interrupt", Branch: b.n, Adopt: left})
	select {
	case <-c.over:
		return false
	case <-b.k.life.Done():
		return false
	case <-time.After(interruptGrace):
	}
	if b.n != 0 {
		return b.close(b.k.life) == nil
	}
	return b.k.restart(b.k.life) == nil
}

// keeper is a request to the process that keeps the worker. It begins with its name,
// by which it is told from others without being read.
type keeper struct {
	Keeper string `json:"keeper"`
	ID     int64  `json:"id,omitempty"`
	Branch int64  `json:"branch,omitempty"`
	Adopt  bool   `json:"adopt,omitempty"` // the code to interrupt is of no caller any more: the next one is told
}

// restart ends the worker with all variables, and has another one.
func (k *kernel) restart(ctx context.Context) error { return k.order(ctx, "restart", 0) }

// ping asks whether the kernel is there, also while it runs code.
func (k *kernel) ping(ctx context.Context) error { return k.order(ctx, "ping", 0) }

// order asks the keeper for something.
func (k *kernel) order(ctx context.Context, what string, n int64) error {
	// A copy is made by the worker.
	c := &call{over: make(chan struct{}), keepers: what != "fork"}
	id, over := k.begin(c)
	defer over()
	if err := k.write(ctx, keeper{Keeper: what, ID: id, Branch: n}); err != nil {
		return err
	}
	select {
	case <-c.over:
		if c.died != nil {
			return c.died
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-k.life.Done():
		return context.Cause(k.life)
	}
}

// fork makes a branch: a copy of the worker as it is now. The caller closes it.
func (k *kernel) fork(ctx context.Context, ask asker) (*branch, error) {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-k.life.Done():
		return nil, context.Cause(k.life)
	}
	b := &branch{k: k, n: k.number.Add(1), turn: make(chan struct{}, 1), ask: ask}
	k.mu.Lock()
	k.branches[b.n] = b
	k.mu.Unlock()
	if err := k.order(ctx, "fork", b.n); err != nil {
		return nil, errors.Join(err, b.close(context.WithoutCancel(ctx)))
	}
	return b, nil
}

// close ends a branch, or the sharing of the worker.
func (b *branch) close(ctx context.Context) error {
	if b.n == 0 {
		b.k.mu.Lock()
		b.k.branches[0] = b.k.branch
		b.k.mu.Unlock()
		<-b.k.turn
		return nil
	}
	b.k.mu.Lock()
	_, open := b.k.branches[b.n]
	delete(b.k.branches, b.n)
	b.k.mu.Unlock()
	if !open {
		return nil
	}
	return b.k.order(ctx, "end", b.n)
}

// share lends the worker itself to one caller, who runs code in the branch that it
// returns and closes it. Meanwhile other calls wait.
func (k *kernel) share(ctx context.Context, ask asker) (*branch, error) {
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-k.life.Done():
		return nil, context.Cause(k.life)
	}
	b := &branch{k: k, turn: make(chan struct{}, 1), ask: ask}
	k.mu.Lock()
	k.branches[0] = b
	k.mu.Unlock()
	return b, nil
}
