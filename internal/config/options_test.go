package config

// as gives the options of an entry, or nil where they are of another kind.
func as[T any](s any) *T {
	switch s := s.(type) {
	case Server:
		t, _ := s.Options.(*T)
		return t
	case *Server:
		t, _ := s.Options.(*T)
		return t
	}
	return nil
}

// meaningOf is what a container is compared by.
func meaningOf(s any) Docker { return *dockerKind.meaning(as[Docker](s)).(*Docker) }
