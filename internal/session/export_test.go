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
