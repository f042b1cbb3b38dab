package agent

import (
	"context"
	"maps"
	"slices"

	"github.com/tine-mcp/tine/internal/store"
)

// pageSize is how many runs are read at once.
const pageSize = 200

// reload has memory say what the store says.
func (s *Service) reload(ctx context.Context) error {
	return s.change(ctx, func(c *change) error {
		there := make(map[string]bool)
		for before := ""; ; {
			page, err := c.Runs(store.RunFilter{States: liveStates, Before: before, Limit: pageSize})
			if err != nil {
				return err
			}
			for _, row := range page {
				r := readRun(row)
				if there[r.ID] = true; r.damaged {
					if err := c.condemn(r); err != nil {
						return err
					}
					continue
				}
				s.o.Secret(r.d.Blueprint.Secrets)
				c.after = append(c.after, func() {
					s.index(r, c.now)
					if r.Created.After(s.last) {
						s.last = r.Created
					}
				})
			}
			if len(page) < pageSize {
				break
			}
			before = page[pageSize-1].ID
		}
		s.mu.Lock()
		gone := slices.DeleteFunc(slices.Collect(maps.Keys(s.live)), func(id string) bool { return there[id] })
		s.mu.Unlock()
		for _, id := range gone { // their end was written when it seemed not to be
			row, ok, err := c.Run(id)
			if err != nil {
				return err
			}
			if ok {
				c.sendSpan(readRun(row))
			}
		}
		c.after = append(c.after, func() {
			for _, id := range gone {
				s.forget(id)
			}
			s.unsure = false
		})
		return nil
	})
}

// condemn fails a run whose record is damaged.
func (c *change) condemn(r *run) error {
	c.s.o.Log.Error("the record of a run is damaged, so the run has failed", "run", r.ID, "session", r.Session)
	return c.fail(r, damaged("run", r.ID))
}
