//go:build unix

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	moby "github.com/moby/moby/client"

	"github.com/tine-mcp/tine/api"
)

// TestRolloutPartialFailure asks for backends of which some can't start: an image
// that is not there, a program that is not in its image, one that ends at once.
// The error names each of them and what is wrong with it, and all that was started
// for the others is gone.
func TestRolloutPartialFailure(t *testing.T) {
	t.Parallel()
	onEngines(t, oneEngine, func(t *testing.T, e *engine) {
		g, id := startOn(t, e,
			e.yaml("kv", imageStatic, `command: [stateserver, -dir, /data], state: [/data]`)+
				e.yaml("whole", imageStatic, `command: [stateserver, -dir, /data], state: [root]`)+
				e.yaml("ghost", "localhost/tine-test/no-such-image:latest", `command: [x]`)+
				e.yaml("typo", imageStatic, `command: [no-such-program]`)+
				e.yaml("dies", imageStatic, `command: [stateserver]`)+
				"  gone: {command: no-such-command-anywhere}\n"+
				yamlState(t, "prog")+"  mem: {builtin: memory}\n")
		r := newTrainer(t, g)
		want := map[string]string{
			"ghost": "no-such-image",
			"typo":  "no-such-program",
			"dies":  "-dir is missing", // its last words
			"gone":  "no-such-command-anywhere",
		}
		for _, tt := range []struct{ backends, fail []string }{
			{[]string{"kv", "whole", "prog", "mem", "ghost"}, []string{"ghost"}},
			{[]string{"dies", "kv", "ghost", "mem", "typo", "prog", "gone"}, []string{"dies", "ghost", "gone", "typo"}},
		} {
			var backends []object
			for _, b := range tt.backends {
				n := 1
				if b == "kv" {
					n = 3
				}
				backends = append(backends, object{"backend_name_ref": b, "num_instances": n})
			}
			_, err := r.init(t.Context(), backends...)
			got := kindOf(err)
			if got == nil || got.Kind != api.KindInfrastructure {
				t.Fatalf("initialize_session of %v: %v (%+v), want kind infrastructure", tt.backends, err, got)
			}
			causes := got.Causes
			if len(tt.fail) == 1 && len(causes) == 0 {
				causes = []*api.Error{got}
			}
			var named []string
			for _, c := range causes {
				named = append(named, c.Server)
				if !strings.Contains(c.Message, want[c.Server]) || !strings.Contains(got.Message, want[c.Server]) {
					t.Errorf("%s fails with %q, all with %q; want %q in both", c.Server, c.Message, got.Message, want[c.Server])
				}
			}
			slices.Sort(named)
			if !slices.Equal(named, tt.fail) {
				t.Errorf("initialize_session of %v: errors of %v, want %v: %s", tt.backends, named, tt.fail, got.Message)
			}
			r.nothingOpen(t)
			nothingLeft(t, g)
			e.nothingOf(t, id)
		}
		// The ones that can start do, without the others.
		s := r.mustInit(t, object{"backend_name_ref": "kv"}, object{"backend_name_ref": "mem"})
		r.mustUse(t, s.ID, "kv", nil, "put", object{"key": "a", "value": "b"})
		r.mustClean(t, s.ID)
		nothingLeft(t, g)
		e.nothingOf(t, id)
	})
}

// TestRolloutShared holds that a shared instance is started once, is the same for
// all sessions, survives their cleanup, is not forked with them, and is started
// again when it dies.
func TestRolloutShared(t *testing.T) {
	t.Parallel()
	onEngines(t, oneEngine, func(t *testing.T, e *engine) {
		g, id := startOn(t, e,
			e.yaml("board", imageStatic, `command: [stateserver, -dir, /tmp], tmpfs: [/tmp]`, "scope: shared")+
				e.yaml("kv", imageStatic, `command: [stateserver, -dir, /data], state: [/data]`))
		r := newTrainer(t, g)
		both := []object{{"backend_name_ref": "board"}, {"backend_name_ref": "kv"}}
		one, two := r.mustInit(t, both...), r.mustInit(t, both...)
		containers := func() (ids []string) {
			t.Helper()
			all, err := e.cli.ContainerList(t.Context(), moby.ContainerListOptions{
				All: true, Filters: make(moby.Filters).Add("label", "tine.gateway="+id, "tine.server=board")})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range all.Items {
				ids = append(ids, c.ID)
			}
			return ids
		}
		r.mustUse(t, one.ID, "board", nil, "put", object{"key": "a", "value": "by one"})
		r.mustHold(t, two.ID, "board", nil, map[string]string{"a": "by one"})
		started := containers()
		if len(started) != 1 {
			t.Fatalf("%d containers of the shared server, want 1", len(started))
		}
		var forks api.Forks
		r.must(t, "fork_session", object{"session_id": one.ID, "count": 2}, &forks)
		r.mustUse(t, forks.Sessions[0].ID, "board", nil, "put", object{"key": "b", "value": "by a fork"})
		r.mustHold(t, two.ID, "board", nil, map[string]string{"a": "by one", "b": "by a fork"})
		for _, s := range []string{one.ID, forks.Sessions[0].ID, forks.Sessions[1].ID} {
			r.mustClean(t, s)
		}
		r.mustHold(t, two.ID, "board", nil, map[string]string{"a": "by one", "b": "by a fork"})
		r.mustClean(t, two.ID)
		if now := containers(); !slices.Equal(now, started) {
			t.Errorf("after every cleanup the shared server has the containers %v, had %v", now, started)
		}
		three := r.mustInit(t, both...)
		r.mustHold(t, three.ID, "board", nil, map[string]string{"a": "by one", "b": "by a fork"})
		r.mustHold(t, three.ID, "kv", nil, map[string]string{})

		if _, err := e.cli.ContainerKill(t.Context(), started[0], moby.ContainerKillOptions{Signal: "KILL"}); err != nil {
			t.Fatal(err)
		}
		if err := eventually(func() error { // the first calls may hear of its death
			_, err := r.use(t.Context(), three.ID, "board", nil, "put", object{"key": "c", "value": "after its death"})
			return err
		}); err != nil {
			t.Fatalf("the shared server does not come back: %v", err)
		}
		if err := eventually(func() error {
			if n := len(containers()); n != 1 {
				return fmt.Errorf("%d containers of the shared server", n)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		r.mustHold(t, three.ID, "kv", nil, map[string]string{})
		r.mustClean(t, three.ID)
		if _, err := g.stop(); err != nil {
			t.Fatal(err)
		}
		e.nothingOf(t, id)
	})
}
