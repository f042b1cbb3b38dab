package upstream

import (
	"io"
	"sync"
	"time"
)

// lingerWait is how long a caller waits for the end of a stream behind its
// answer.
const lingerWait = 50 * time.Millisecond

// A linger reads the ends of streams behind their answers, so that their TCP
// connections can be used again. A caller waits for that: it is a moment, and
// without it the next call would find no connection and dial. Callers don't wait
// for a server that leaves its streams open; those are read in the background for a
// while, until one ends in time again.
type linger struct {
	mu      sync.Mutex
	open    map[io.Closer]time.Time
	looking bool
	slow    bool // the last streams stayed open
	closed  bool
	wg      sync.WaitGroup
}

// drain reads the rest of a stream.
func (l *linger) drain(body io.ReadCloser) {
	l.mu.Lock()
	slow, closed := l.slow, l.closed
	if slow && !closed {
		l.wg.Add(1)
	}
	if !slow {
		l.watch(body)
	}
	l.mu.Unlock()
	switch {
	case closed:
		body.Close()
	case slow:
		go l.background(body)
	default:
		readRest(body)
		l.mu.Lock()
		delete(l.open, body)
		l.mu.Unlock()
		body.Close()
	}
}

func readRest(body io.Reader) {
	var rest [512]byte
	for range 64 {
		if _, err := body.Read(rest[:]); err != nil {
			return
		}
	}
}

// background reads a stream's end while no caller waits.
func (l *linger) background(body io.ReadCloser) {
	defer l.wg.Done()
	late := time.AfterFunc(lingerWait, func() { body.Close() })
	readRest(body)
	if late.Stop() {
		l.mu.Lock()
		l.slow = false
		l.mu.Unlock()
	}
	body.Close()
}

// watch closes a stream that stays open too long. One periodic check covers all
// streams, since a timer for each call would cost more than the reading. l.mu is
// held.
func (l *linger) watch(body io.Closer) {
	if l.open == nil {
		l.open = make(map[io.Closer]time.Time)
	}
	l.open[body] = time.Now()
	if !l.looking {
		l.looking = true
		time.AfterFunc(lingerWait, l.look)
	}
}

func (l *linger) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for body, since := range l.open {
		if time.Since(since) >= lingerWait {
			l.slow = true
			delete(l.open, body)
			body.Close()
		}
	}
	if l.looking = len(l.open) > 0; l.looking {
		time.AfterFunc(lingerWait, l.look)
	}
}

// close waits for the background reads.
func (l *linger) close() {
	l.mu.Lock()
	l.closed = true
	for body := range l.open {
		body.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
}
