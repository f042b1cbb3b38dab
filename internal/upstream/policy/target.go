package policy

// A target is what chains share that talk to the same server in the same way: as
// one version of its config has it. A chain of an older version has another target,
// so that nothing mixes.
type target struct {
	of    string
	id    uint64
	hints *hints
	// public are the lists that every principal may see, and kept the results.
	public [listKinds]scope
	kept   scope

	chains int // that are not closed; guarded by Server.mu
}

// join returns the target for one more chain. The newest target stays without a
// chain, for the next one; older ones are dropped with their last chain.
func (s *Server) join(of string) *target {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.targets[of]
	if t == nil {
		t = &target{of: of, id: s.numbers.Add(1), hints: newHints(s)}
		s.targets[of] = t
	}
	t.chains++
	if old := s.newest; old != nil && old != t && old.chains == 0 {
		s.drop(old)
	}
	s.newest = t
	return t
}

func (s *Server) leave(t *target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.chains--; t.chains == 0 && t != s.newest {
		s.drop(t)
	}
}

// drop takes a target out. s.mu is held.
func (s *Server) drop(t *target) {
	delete(s.targets, t.of)
	for kind := range t.public {
		s.lists.drop(&t.public[kind])
	}
	s.results.drop(&t.kept)
}
