package upstream

import (
	"context"
	"sync"
	"time"
)

const (
	// maxBacklog and maxBacklogBytes bound a backlog.
	maxBacklog      = 8192
	maxBacklogBytes = 1 << 20
)

// A backlog holds messages to a server that nobody waits for, such as the note
// that a call was cancelled. One goroutine, which runs while there are any,
// sends them in order: neither a caller nor the reader of a connection waits for
// a server that does not read.
type backlog struct {
	mu      sync.Mutex
	queue   [][]byte // the first is being sent
	size    int      // bytes in queue
	closed  bool
	sent    chan struct{} // closed when the queue is empty; nil while no goroutine runs
	life    context.Context
	end     context.CancelFunc
	sending sync.WaitGroup
}

// add has a message sent. It reports false when the backlog is full or closed.
func (b *backlog) add(c *Conn, frame []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || len(b.queue) >= maxBacklog || b.size+len(frame) > maxBacklogBytes {
		return false
	}
	b.queue = append(b.queue, frame)
	b.size += len(frame)
	if b.sent == nil {
		if b.life == nil {
			b.life, b.end = context.WithCancel(context.Background())
		}
		b.sent = make(chan struct{})
		b.sending.Go(func() { b.run(c) })
	}
	return true
}

func (b *backlog) run(c *Conn) {
	for {
		b.mu.Lock()
		if len(b.queue) == 0 {
			b.queue = nil
			close(b.sent)
			b.sent = nil
			b.mu.Unlock()
			return
		}
		frame := b.queue[0]
		b.mu.Unlock()
		ctx, cancel := context.WithTimeout(b.life, sendTimeout)
		if err := c.t.send(ctx, frame); err != nil {
			c.log.Debug("message to a server not sent", "server", c.server, "err", err)
		}
		cancel()
		b.mu.Lock()
		b.queue = b.queue[1:]
		b.size -= len(frame)
		b.mu.Unlock()
	}
}

// flush waits until all messages are sent, at most that long.
func (b *backlog) flush(most time.Duration) {
	b.mu.Lock()
	sent := b.sent
	b.mu.Unlock()
	if sent == nil {
		return
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-sent:
	case <-timer.C:
	}
}

// close takes no more messages, and drops those that are not sent in time.
func (b *backlog) close(most time.Duration) {
	b.mu.Lock()
	b.closed = true
	end := b.end
	b.mu.Unlock()
	if end != nil {
		b.flush(most)
		end()
	}
}

// wait returns when nothing is sent any more. The backlog is closed.
func (b *backlog) wait() { b.sending.Wait() }
