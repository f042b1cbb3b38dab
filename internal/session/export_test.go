package session

// Bounds, for tests.
const Together = together

// Suspend ends the instances of an unused session, as the reaper does.
func (r *Registry) Suspend(s *Session) { r.suspend(s) }

// Fill has as many ready as there is room for, as the reaper does.
func (r *Registry) Fill() { r.stock.fill() }

// PendingLoss is a loss that no call was told of yet.
type PendingLoss = pendingLoss
