package session

// Bounds, for tests.
const Together = together

// Rest ends the instances of a session that nobody uses, as the reaper does.
func (r *Registry) Suspend(s *Session) { r.suspend(s) }

// Fill has as many ready as there is room for, as the reaper does.
func (r *Registry) Fill() { r.stock.fill() }

// Untold is what a record says that a session has still to be told.
type Untold = untold
