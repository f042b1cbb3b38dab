package upstream

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// maxBacklog and maxBacklogBytes bound a backlog.
	maxBacklog      = 8192
	maxBacklogBytes = 1 << 20
)

// A backlog holds messages to a server that no caller waits for: notes that a call
// was cancelled, and answers to the server's requests that need no client. One
// goroutine, which runs while there are any, sends them in order: neither a
// caller nor the reader of a connection waits for a server that does not read.
type backlog struct {
	mu      sync.Mutex
	queue   []outgoing // the first is being sent
	size    int        // bytes in queue
	closed  bool
	sent    chan struct{} // closed when the queue is empty; nil while no goroutine runs
	life    context.Context
	end     context.CancelFunc
	sending sync.WaitGroup
}

// outgoing is one message of a backlog.
type outgoing struct {
	frame []byte
	asked *Asked // what it answers; nil for a note, which may be dropped
}

var (
	errBacklogFull   = errors.New("too many messages wait for the server, which does not read them")
	errBacklogClosed = errors.New("the connection is closed")
)

// add has a message sent.
func (b *backlog) add(c *Conn, m outgoing) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return errBacklogClosed
	case len(b.queue) >= maxBacklog, len(b.queue) > 0 && b.size+len(m.frame) > maxBacklogBytes:
		return errBacklogFull
	}
	b.queue = append(b.queue, m)
	b.size += len(m.frame)
	if b.sent == nil {
		if b.life == nil {
			b.life, b.end = context.WithCancel(context.Background())
		}
		b.sent = make(chan struct{})
		b.sending.Go(func() { b.run(c) })
	}
	return nil
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
		m := b.queue[0]
		b.mu.Unlock()
		if err := c.deliver(b.life, m.frame, m.asked != nil); err != nil {
			c.log.Debug("message to a server not sent", "server", c.server, "err", err)
		}
		b.mu.Lock()
		b.queue[0] = outgoing{}
		b.queue = b.queue[1:]
		b.size -= len(m.frame)
		b.mu.Unlock()
	}
}

// deliver sends a message that no caller waits for, within sendTimeout. One that
// must arrive is sent again until ctx ends, where the server can't have got it
// twice: between the attempts the instance can be held.
func (c *Conn) deliver(ctx context.Context, frame []byte, must bool) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, sendTimeout)
		err := c.t.send(attempt, frame)
		late := attempt.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !late || !must || !c.piped() {
			return err
		}
	}
}

// piped reports whether a message that was not sent in time can't have reached the
// server, unlike one that was posted.
func (c *Conn) piped() bool {
	t, ok := c.t.(*streamTransport)
	if ok {
		_, posted := t.s.(*sseStream)
		ok = !posted
	}
	return ok
}

// unread lists the requests of the server whose answers were not sent yet.
func (b *backlog) unread() []Asked {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []Asked
	for _, m := range b.queue {
		if m.asked != nil {
			all = append(all, *m.asked)
		}
	}
	return all
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
