package drivertest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
)

// testRandom does whatever comes to mind to a few members and compares each with
// a plain map.
func (s *Suite) testRandom(t *testing.T) {
	const keys, most = 6, 6
	steps := s.times(150, 30)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	w := s.world(t)
	type model struct {
		*member
		want map[string]string
	}
	type frozen struct {
		driver.Snapshot
		want map[string]string
	}
	blank := make(map[string]string)
	for n := range keys {
		blank[fmt.Sprint("k", n)] = ""
	}
	worlds := []*model{{w.open(t, "w0", driver.Source{}), maps.Clone(blank)}}
	var snaps []*frozen
	for n := 1; n < steps && !t.Failed(); n++ {
		i := rnd.IntN(len(worlds))
		m := worlds[i]
		switch what := rnd.IntN(20); {
		case what < 9: // write
			key := fmt.Sprint("k", rnd.IntN(keys))
			m.want[key] = fmt.Sprint("v", n)
			m.put(t, key, m.want[key])
		case what < 11: // read all
			m.knows(t, m.want)
		case what < 13: // start anew
			m.stop(t)
			m.start(t)
		case what < 14 && s.Kill != nil: // after a crash
			s.Kill(t, m.inst)
			Ended(t, m.inst)
			m.stop(t)
			m.start(t)
			m.knows(t, m.want)
		case what < 16: // freeze
			snaps = append(snaps, &frozen{m.freeze(t, fmt.Sprint("s", n)), maps.Clone(m.want)})
		case what < 18 && len(snaps) > 0 && len(worlds) < most: // open from a snapshot
			j := rnd.IntN(len(snaps))
			f := snaps[j]
			take := rnd.IntN(3) == 0
			worlds = append(worlds, &model{w.open(t, fmt.Sprint("w", n), driver.Source{From: &f.Snapshot, Take: take}), maps.Clone(f.want)})
			if take {
				w.discard(t, f.Snapshot)
				snaps = append(snaps[:j], snaps[j+1:]...)
			}
		case what < 19 && len(snaps) > 0: // rewind to a snapshot
			f := snaps[rnd.IntN(len(snaps))]
			m.close(t)
			worlds[i] = &model{w.open(t, fmt.Sprint("w", n), driver.Source{From: &f.Snapshot}), maps.Clone(f.want)}
		case len(worlds) > 1: // close
			m.close(t)
			worlds = append(worlds[:i], worlds[i+1:]...)
		}
	}
	for _, m := range worlds {
		m.knows(t, m.want)
		m.close(t)
	}
	for _, f := range snaps {
		w.discard(t, f.Snapshot)
	}
	Empty(t, w.dir)
}
