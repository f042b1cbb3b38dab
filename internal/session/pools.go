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
