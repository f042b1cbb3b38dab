package session

import "github.com/tine-mcp/tine/internal/driver"

// Pools says what the drivers have prepared, by server.
func (r *Registry) Pools() map[string]driver.Pool {
	all := make(map[string]driver.Pool)
	for _, d := range r.o.Drivers {
		p, ok := d.(driver.Preparer)
		if !ok {
			continue
		}
		for _, one := range p.Pools() {
			sum := all[one.Server]
			sum.Server = one.Server
			sum.Slots += one.Slots
			sum.Ready += one.Ready
			sum.Live += one.Live
			sum.Parked += one.Parked
			all[one.Server] = sum
		}
	}
	return all
}

// expect has what the children of a fork need prepared from now on, while the
// parent still stands in the way of its own snapshot. It waits for nothing, and
// neither does what it returns, which says that the fork is over.
func (s *Session) expect(count int) (over func()) {
	take, _, err := s.carried(toFork)
	if err != nil {
		return func() {} // which the fork will say
	}
	var all []func()
	for _, e := range take {
		if on, _ := e.On(); !on || e.Preparer() == nil || e.Runner.Info().Light {
			continue
		}
		spec := e.Spec()
		spec.Log = s.r.o.Log
		if e.Workspace {
			if spec.Workspace = s.spaces.at(e.Ordinal).open.Load(); spec.Workspace == nil {
				continue // it is not open, so nothing runs
			}
		}
		all = append(all, e.Preparer().Expect(spec, count))
	}
	return func() {
		for _, over := range all {
			over()
		}
	}
}
