//go:build linux && (amd64 || arm64)

package sandbox

import (
	"fmt"
	"slices"

	"github.com/tine-mcp/tine/internal/driver"
)

var _ driver.Preparer = (*Driver)(nil)

// Ready implements driver.Preparer.
func (d *Driver) Ready(spec driver.Spec, from driver.Snapshot, count int) error {
	if from.Carries != driver.CarryMemory || from.Dir == "" {
		return nil
	}
	st, err := readState(from.Dir)
	if err != nil {
		return fmt.Errorf("server %q: %w", spec.Server, err)
	}
	if st.Image == nil {
		return nil
	}
	if len(spec.Dirs) > 0 && count <= 0 {
		return nil
	}
	var plan *plan
	if len(spec.Dirs) == 0 {
		if plan, err = d.plan(d.ctx, blank(spec)); err != nil {
			return fmt.Errorf("server %q: %w", spec.Server, err)
		}
	}
	if plan == nil || !plan.bare() {
		return fmt.Errorf("server %q can't stand ready: it has directories of its own on the host", spec.Server)
	}
	runsc, err := d.helpers.reads(st.Image.Runsc, st.Image.GVisor)
	if err != nil {
		return fmt.Errorf("server %q: %w", spec.Server, err)
	}
	key := readyKey(plan.key(d, runsc), st.Image.ID)
	d.pool.mu.Lock()
	defer d.pool.mu.Unlock()
	s := d.pool.shelves[key]
	switch {
	case d.pool.closed:
		return nil
	case count <= 0:
		if s != nil {
			d.pool.empty(s)
			delete(d.pool.shelves, key)
		}
		return nil
	case s == nil:
		s = &shelf{key: key, server: spec.Server, spec: blank(spec), plan: plan, runsc: runsc, image: imageOf(from.Dir)}
		d.pool.add(s)
	}
	s.want = count
	d.pool.stir()
	return nil
}

// Pools implements driver.Preparer.
func (d *Driver) Pools() []driver.Pool {
	all := make(map[string]*driver.Pool)
	of := func(server string) *driver.Pool {
		if all[server] == nil {
			all[server] = &driver.Pool{Server: server}
		}
		return all[server]
	}
	d.pool.mu.Lock()
	for _, s := range d.pool.shelves {
		if s.image == "" {
			of(s.server).Slots += len(s.have)
		} else {
			of(s.server).Ready += len(s.have)
		}
	}
	d.pool.mu.Unlock()
	d.live.Range(func(k, _ any) bool {
		i := k.(*instance)
		of(i.h.Server).Live++
		if i.park.parked.Load() {
			of(i.h.Server).Parked++
		}
		return true
	})
	pools := make([]driver.Pool, 0, len(all))
	for _, p := range all {
		pools = append(pools, *p)
	}
	slices.SortFunc(pools, func(a, b driver.Pool) int {
		if a.Server < b.Server {
			return -1
		}
		return 1
	})
	return pools
}
