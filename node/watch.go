package node

// A live source says when its nodes change.
type live interface {
	Source
	// onChange calls f after changes, one call at a time, until stop is called.
	onChange(f func()) (stop func())
}

type watcher struct{ f func() }

func (s *Server) onChange(f func()) (stop func()) {
	w := &watcher{f}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers[w] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, w)
	}
}

func (s *Server) notify() {
	s.mu.Lock()
	var all []func()
	for w := range s.watchers {
		all = append(all, w.f)
	}
	s.mu.Unlock()
	for _, f := range all {
		f()
	}
}
