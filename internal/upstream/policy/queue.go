package policy

// A queue has the calls that wait for a turn: a ring with a line for each
// principal. The first call of the head line is next, and then the line behind it
// becomes the head. It is guarded by its turns.
type queue struct {
	n     int
	lines map[string]*line
	head  *line
}

// A line has the waiting calls of one principal. It is in the ring while it has
// any.
type line struct {
	who         string
	n           int
	first, last *waiter
	prev, next  *line
}

// A waiter is one call that waits.
type waiter struct {
	line       *line
	prev, next *waiter
	pause      *pause
	list       bool // it needs no token of the rate

	ready   chan struct{} // closed when it got its turn, or err
	granted bool
	err     error
}

// end refuses a waiter that was removed from the queue.
func (w *waiter) end(err error) {
	w.err = err
	close(w.ready)
}

// of returns how many calls of a principal wait.
func (q *queue) of(who string) int {
	if l := q.lines[who]; l != nil {
		return l.n
	}
	return 0
}

// longest returns the line with the most calls.
func (q *queue) longest() *line {
	most := q.head
	for l := q.head.next; l != q.head; l = l.next {
		if l.n > most.n {
			most = l
		}
	}
	return most
}

// push adds a call at the end of its principal's line. A line that was empty
// joins the ring behind all others.
func (q *queue) push(who string) *waiter {
	l := q.lines[who]
	if l == nil {
		l = &line{who: who}
		if q.lines == nil {
			q.lines = make(map[string]*line)
		}
		q.lines[who] = l
		if q.head == nil {
			l.prev, l.next = l, l
			q.head = l
		} else {
			l.prev, l.next = q.head.prev, q.head
			l.prev.next, l.next.prev = l, l
		}
	}
	w := &waiter{line: l, prev: l.last, ready: make(chan struct{})}
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
	l.n++
	q.n++
	return w
}

// pick removes the waiter that gets a turn. After the first of the head line the
// next line becomes the head.
func (q *queue) pick(w *waiter) {
	if w.line == q.head {
		q.head = q.head.next
	}
	q.remove(w)
}

// list is a waiting list request; nil for none.
func (q *queue) list() (found *waiter) {
	q.each(func(w *waiter) {
		if found == nil && w.list {
			found = w
		}
	})
	return found
}

// remove takes a waiter out, from any place.
func (q *queue) remove(w *waiter) {
	l := w.line
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	l.n--
	q.n--
	if l.n > 0 {
		return
	}
	delete(q.lines, l.who)
	if l.next == l {
		q.head = nil
		return
	}
	l.prev.next, l.next.prev = l.next, l.prev
	if q.head == l {
		q.head = l.next
	}
}

// each calls fn with every waiter, which it may remove.
func (q *queue) each(fn func(*waiter)) {
	for _, l := range q.lines {
		for w := l.first; w != nil; {
			next := w.next
			fn(w)
			w = next
		}
	}
}
