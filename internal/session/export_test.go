package session

// Bounds, for tests.
const (
	Together  = together
	MostViews = mostViews
)

// Views counts the catalogs that are kept for sessions.
func (r *Registry) Views() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.views)
}

// Rest ends the instances of a session that nobody uses, as the reaper does.
func (r *Registry) Suspend(s *Session) { r.suspend(s) }

// Fill has as many ready as there is room for, as the reaper does.
func (r *Registry) Fill() { r.fillWarm() }

// Untold is what a record says that a session has still to be told.
type Untold = untold
