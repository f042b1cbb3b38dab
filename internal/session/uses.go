package session

import "context"

// Use says which session the clients of this one mean from now on when they name
// none: the one that they opened. It lasts as long as this session does.
func (s *Session) Use(ctx context.Context, id string) error {
	if s.Uses() == id {
		return nil
	}
	return s.change(ctx, func(f *facts) { f.Uses = id })
}

// Uses returns it; empty where they mean this one.
func (s *Session) Uses() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.facts.Uses
}
