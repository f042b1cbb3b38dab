//go:build unix

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A desk is a server that keeps files, in one of the ways that it can be run, and
// begins with a template that has note.txt in it.
type desk struct {
	name   string
	config func(t *testing.T) string // of the servers; the template is ./templates/desk
	root   string                    // before the names of files
	engine *engine                   // nil where it is in none
}

// desks are the ways to run one. Those in containers are missing where there is
// no engine, which needEngine judges.
func desks() []desk {
	list := []desk{
		{name: "builtin", config: func(*testing.T) string { return "  fs: {builtin: files}\n" }},
		{name: "process", config: func(t *testing.T) string {
			paths := need(t, node, npmFilesystem)
			return yamlServer("fs", paths[0], []string{paths[1], "${workspace}"}, "connect_timeout: 5m")
		}},
	}
	for _, name := range oneEngine {
		list = append(list, desk{name: name, root: "/projects/"})
	}
	return list
}

// start runs a gateway with the desk.
func (d *desk) start(t *testing.T) *gateway {
	t.Helper()
	if d.config == nil {
		d.engine = needEngine(t, d.name)
		d.config = func(*testing.T) string {
			return d.engine.yaml("fs", imageServers, `command: [mcp-server-filesystem, /projects], state: [/projects]`, "connect_timeout: 5m")
		}
	}
	g, _ := startOn(t, d.engine, d.config(t), func(dir string) { writeTemplate(t, filepath.Join(dir, "desk")) })
	return g
}

// nothingLeft holds that neither the gateway nor the engine has anything of a
// session left, and that the gateway leaves nothing when it ends.
func (d *desk) nothingLeft(t *testing.T, g *gateway) {
	t.Helper()
	nothingLeft(t, g)
	id := gatewayID(t, g)
	if d.engine != nil {
		d.engine.nothingOf(t, id)
	}
	if _, err := g.stop(); err != nil {
		t.Fatal(err)
	}
	if d.engine != nil {
		d.engine.nothingOf(t, id)
	}
}

func (d *desk) move(ctx context.Context, r trainer, session string, instance any) error {
	_, err := r.use(ctx, session, "fs", instance, "move_file", object{"source": d.root + "note.txt", "destination": d.root + "moved.txt"})
	return err
}

// has tells which files there are, and holds that what is in them is right.
func (d *desk) has(ctx context.Context, r trainer, session string, instance any) (string, error) {
	dir := "."
	if d.root != "" {
		dir = strings.TrimSuffix(d.root, "/")
	}
	list, err := r.use(ctx, session, "fs", instance, "list_directory", object{"path": dir})
	if err != nil {
		return "", err
	}
	name := strings.TrimSpace(strings.ReplaceAll(list, "[FILE] ", ""))
	text, err := r.use(ctx, session, "fs", instance, "read_text_file", object{"path": d.root + name})
	if err == nil && text != "on the desk" {
		err = fmt.Errorf("%s has %q in it", name, text)
	}
	return name, err
}

func (d *desk) mustHave(t *testing.T, r trainer, session string, instance any, want string) {
	t.Helper()
	got, err := d.has(t.Context(), r, session, instance)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("instance %v of session %s has %q, want %q", instance, session, got, want)
	}
}

// TestRolloutScenario begins two instances and another session with a template
// that has a file. The file is moved in one instance, and stays where it is in all
// others; so it is after a kill -9 of the gateway in the middle. Cleaning up
// leaves nothing: no container, image, volume, network, process or folder.
func TestRolloutScenario(t *testing.T) {
	t.Parallel()
	for _, d := range desks() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			g := d.start(t)
			r := newTrainer(t, g)
			fs := object{"backend_name_ref": "fs", "template_details": "desk"}
			two := r.mustInit(t, object{"backend_name_ref": "fs", "template_details": "desk", "num_instances": 2})
			other := r.mustInit(t, fs)
			first, second := two.instances("fs")[0].ID, two.instances("fs")[1].ID
			if err := d.move(t.Context(), r, two.ID, first); err != nil {
				t.Fatal(err)
			}
			hold := func(r trainer) {
				t.Helper()
				d.mustHave(t, r, two.ID, first, "moved.txt")
				d.mustHave(t, r, two.ID, second, "note.txt")
				d.mustHave(t, r, other.ID, nil, "note.txt")
			}
			hold(r)

			g.kill()
			if err := g.start(); err != nil {
				t.Fatal(err)
			}
			r = newTrainer(t, g)
			hold(r)
			// What was there before the kill can be branched after it.
			var forks struct{ Sessions []struct{ ID string } }
			r.must(t, "fork_session", object{"session_id": two.ID, "count": 2}, &forks)
			if err := d.move(t.Context(), r, forks.Sessions[0].ID, second); err != nil {
				t.Fatal(err)
			}
			d.mustHave(t, r, forks.Sessions[0].ID, second, "moved.txt")
			d.mustHave(t, r, forks.Sessions[1].ID, second, "note.txt")
			hold(r)
			// The template is as it was.
			if data, err := os.ReadFile(filepath.Join(g.dir, "templates", "desk", "note.txt")); err != nil || string(data) != "on the desk" {
				t.Errorf("the template: %q %v", data, err)
			}
			for _, id := range []string{two.ID, other.ID, forks.Sessions[0].ID, forks.Sessions[1].ID} {
				r.mustClean(t, id)
				if d.engine != nil {
					// A volume may be a fork's by now, and goes with that.
					if left := d.engine.mustOwned(t, "tine.session="+id); left.count("container") > 0 {
						t.Errorf("after session %s was cleaned up: %v", id, left)
					}
				}
			}
			r.nothingOpen(t)
			if err := closeAll(t.Context(), g.client(t)); err != nil { // snapshots
				t.Error(err)
			}
			d.nothingLeft(t, g)
		})
	}
}
