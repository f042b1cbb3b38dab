package conns

// A list is a ring of nodes that are part of what they list: unlike
// container/list, to add one allocates nothing.
type list[T any] struct{ root node[T] }

type node[T any] struct {
	prev, next *node[T]
	v          T
}

func newList[T any]() *list[T] {
	l := new(list[T])
	l.init()
	return l
}

func (l *list[T]) init() { l.root.prev, l.root.next = &l.root, &l.root }

func (l *list[T]) empty() bool { return l.root.next == &l.root }

func (l *list[T]) first() T { return l.root.next.v }

// push adds a node that is in no list at the end.
func (l *list[T]) push(n *node[T]) {
	n.prev, n.next = l.root.prev, &l.root
	n.prev.next, n.next.prev = n, n
}

func (n *node[T]) linked() bool { return n.next != nil }

func (n *node[T]) remove() {
	n.prev.next, n.next.prev = n.next, n.prev
	n.prev, n.next = nil, nil
}
