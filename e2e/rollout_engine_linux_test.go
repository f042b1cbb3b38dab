package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	moby "github.com/moby/moby/client"

	"github.com/tine-mcp/tine/api"
)

// inventory is everything that an engine has, whosever it is.
func (e *engine) inventory(ctx context.Context) ([]string, error) {
	var all []string
	containers, err := e.cli.ContainerList(ctx, moby.ContainerListOptions{All: true})
	if err != nil {
		return nil, err
	}
	for _, c := range containers.Items {
		all = append(all, "container "+c.ID)
	}
	volumes, err := e.cli.VolumeList(ctx, moby.VolumeListOptions{})
	if err != nil {
		return nil, err
	}
	for _, v := range volumes.Items {
		all = append(all, "volume "+v.Name)
	}
	images, err := e.cli.ImageList(ctx, moby.ImageListOptions{All: true})
	if err != nil {
		return nil, err
	}
	for _, i := range images.Items {
		all = append(all, "image "+i.ID)
	}
	networks, err := e.cli.NetworkList(ctx, moby.NetworkListOptions{})
	if err != nil {
		return nil, err
	}
	for _, n := range networks.Items {
		all = append(all, "network "+n.Name)
	}
	slices.Sort(all)
	return all, nil
}

// TestRolloutEngineKilled kills the engine under rollouts, with a call and an
// initialize_session running, and starts it again. What declared its state goes
// on with it, what did not says that it is lost or begins anew, nothing that was
// half made is left, and after cleanup the engine has exactly what it had before.
func TestRolloutEngineKilled(t *testing.T) {
	t.Parallel()
	e := startPrivateEngine(t)
	before, err := e.inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g, _ := startOn(t, nil,
		e.yaml("kv", imageStatic, `command: [stateserver, -dir, /data], state: [/data]`)+
			e.yaml("bare", imageStatic, `command: [stateserver, -dir, /tmp], tmpfs: [/tmp]`)+
			"  mem: {builtin: memory}\n",
		func(dir string) { writeLog(t, filepath.Join(dir, "start"), map[string]string{"a": "template"}) })
	r := newTrainer(t, g)
	kv := object{"backend_name_ref": "kv", "template_details": "start", "num_instances": 2}
	s := r.mustInit(t, kv, object{"backend_name_ref": "bare"}, object{"backend_name_ref": "mem"})
	other := r.mustInit(t, kv)
	r.mustUse(t, s.ID, "kv", 0, "put", object{"key": "b", "value": "answered"})
	r.mustUse(t, s.ID, "bare", nil, "put", object{"key": "b", "value": "answered"})

	call, begin := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := r.use(t.Context(), s.ID, "kv", 0, "put", object{"key": "c", "value": "asked", "ms": 60000})
		call <- err
	}()
	go func() {
		_, err := r.init(t.Context(), kv, object{"backend_name_ref": "bare"})
		begin <- err
	}()
	had := len(before)
	waitFor(t, begin, func(ctx context.Context) (bool, error) {
		now, err := e.inventory(ctx)
		if len(now) > had && had == len(before) {
			had = len(now) // of the sessions that are there
		}
		return len(now) > had, err
	})
	waitRunning(t, g.client(t), s.ID, 1)
	e.kill()
	if err := e.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-call; kindOf(err) == nil || kindOf(err).Kind == api.KindTool {
		t.Errorf("the running call: %v (%+v), want an error of Tine's", err, kindOf(err))
	}
	switch err := <-begin; {
	case err == nil: // it came through before
	case kindOf(err) == nil || kindOf(err).Kind == api.KindTool || kindOf(err).Kind == api.KindInvalid:
		t.Errorf("initialize_session: %v (%+v), want an error of Tine's", err, kindOf(err))
	}

	// What declared its state has it.
	for _, tt := range []struct {
		session  string
		instance int
		want     map[string]string
	}{
		{s.ID, 0, map[string]string{"a": "template", "b": "answered"}},
		{s.ID, 1, map[string]string{"a": "template"}},
		{other.ID, 0, map[string]string{"a": "template"}},
	} {
		if err := eventually(func() error {
			_, err := r.values(t.Context(), tt.session, "kv", tt.instance)
			return err
		}); err != nil {
			t.Fatalf("after the engine is back: %v", err)
		}
		r.mustHold(t, tt.session, "kv", tt.instance, tt.want)
	}
	// What did not is lost, or begins anew: it never has data that were not kept.
	if err := eventually(func() error {
		got, err := r.values(t.Context(), s.ID, "bare", nil)
		if e := kindOf(err); e != nil && e.Kind == api.KindLost {
			return nil
		}
		if err == nil && len(got) > 0 {
			return final{fmt.Errorf("it has %v", got)}
		}
		return err
	}); err != nil {
		t.Errorf("the server without a state: %v", err)
	}

	r.cleanListed(t)
	r.nothingOpen(t)
	nothingLeft(t, g)
	if err := eventually(func() error {
		after, err := e.inventory(t.Context())
		if err == nil && !slices.Equal(after, before) {
			err = fmt.Errorf("the engine has %v, had %v", after, before)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
