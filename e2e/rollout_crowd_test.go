//go:build unix

package e2e

import (
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/torture"
)

// TestRolloutCrowd begins many sessions at once from one template, forks one of
// them into 8, and has all of them change what they have at once: each has the
// template's values and its own, and none of another.
func TestRolloutCrowd(t *testing.T) {
	t.Parallel()
	ways := []struct {
		name   string
		count  int
		config func(t *testing.T) (string, *engine)
	}{
		{"process", torture.Or(12, 32), func(t *testing.T) (string, *engine) { return yamlState(t, "kv"), nil }},
	}
	for _, w := range []struct {
		name  string
		count int
	}{{"docker", torture.Or(6, 32)}, {"podman", 8}} {
		if !slices.Contains(oneEngine, w.name) {
			continue
		}
		ways = append(ways, struct {
			name   string
			count  int
			config func(t *testing.T) (string, *engine)
		}{w.name, w.count, func(t *testing.T) (string, *engine) {
			e := needEngine(t, w.name)
			return e.yaml("kv", imageStatic, `command: [stateserver, -dir, /data], state: [/data]`, "connect_timeout: 5m"), e
		}})
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			config, e := way.config(t)
			g, id := startOn(t, e, config+"  mem: {builtin: memory}\n")
			r := newTrainer(t, g)
			first := r.mustInit(t, object{"backend_name_ref": "kv"}, object{"backend_name_ref": "mem"})
			r.mustUse(t, first.ID, "kv", nil, "put", object{"key": "a", "value": "template"})
			var snap api.Snapshot
			r.must(t, "snapshot_session", object{"session_id": first.ID, "name": "start"}, &snap)
			r.mustClean(t, first.ID)

			sessions := make([]string, way.count)
			var all sync.WaitGroup
			for i := range sessions {
				all.Go(func() {
					s, err := r.init(t.Context(), object{"backend_name_ref": "kv", "template_details": "start"}, object{"backend_name_ref": "mem"})
					if err != nil {
						t.Error(err)
						return
					}
					sessions[i] = s.ID
					if _, err := r.use(t.Context(), s.ID, "kv", nil, "put", object{"key": "b", "value": s.ID}); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if t.Failed() {
				return
			}
			var forks api.Forks
			r.must(t, "fork_session", object{"session_id": sessions[0], "count": 8}, &forks)
			if len(forks.Sessions) != 8 {
				t.Fatalf("%d forks, want 8", len(forks.Sessions))
			}
			change := func(session, parent string) {
				all.Go(func() {
					want := map[string]string{"a": "template", "b": session}
					if parent != "" {
						want["b"] = parent
					}
					for _, key := range []string{"c", "d"} {
						want[key] = key + session
						if _, err := r.use(t.Context(), session, "kv", nil, "put", object{"key": key, "value": want[key]}); err != nil {
							t.Error(err)
							return
						}
					}
					if got, err := r.values(t.Context(), session, "kv", nil); err != nil || !maps.Equal(got, want) {
						t.Errorf("session %s has %v (%v), want %v", session, got, err, want)
					}
				})
			}
			for _, s := range sessions {
				change(s, "")
			}
			for _, s := range forks.Sessions {
				change(s.ID, sessions[0])
			}
			all.Wait()
			for _, s := range forks.Sessions {
				sessions = append(sessions, s.ID)
			}
			for _, s := range sessions {
				all.Go(func() {
					if err := r.do(t.Context(), "cleanup_session", object{"rk_session_id": s}, nil); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			r.nothingOpen(t)
			if err := g.client(t).DeleteSnapshot(t.Context(), snap.ID); err != nil {
				t.Error(err)
			}
			nothingLeft(t, g)
			if e != nil {
				e.nothingOf(t, id)
			}
		})
	}
}
