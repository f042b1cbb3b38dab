//go:build linux && (amd64 || arm64)

package e2e

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// TestSandboxDepth forks a fork of a fork, five deep and two wide, and changes
// something else in each: every session ends with what its ancestors had when it
// was made, what it did since, and nothing of any other.
func TestSandboxDepth(t *testing.T) {
	t.Parallel()
	w := startCell(t, "servers:\n"+yamlSand(t, nil))
	c := w.client(t)
	root := openSession(t, c, api.NewSession{}).ID
	sandShelf.mustPut(t, c, root, "root", "0")
	was := mustLive(t, c, root)

	wants := map[string]map[string]string{root: {"root": "0"}}
	at := root
	for depth := 1; depth <= 5; depth++ {
		children := fork(t, c, at, 2)
		for n, child := range children {
			want := maps.Clone(wants[at])
			sandShelf.mustHold(t, c, child.ID, want)
			for key, value := range map[string]string{fmt.Sprint("depth", depth): child.ID, "last": fmt.Sprint(depth, "-", n), "root": fmt.Sprint(depth)} {
				sandShelf.mustPut(t, c, child.ID, key, value)
				want[key] = value
			}
			wants[child.ID] = want
		}
		// What an ancestor does afterwards is no concern of those below it.
		key := fmt.Sprint("after", depth)
		sandShelf.mustPut(t, c, at, key, at)
		wants[at][key] = at
		at = children[depth%2].ID
	}
	if len(wants) != 11 {
		t.Fatalf("there are %d sessions, want 11", len(wants))
	}
	for id, want := range wants {
		sandShelf.mustHold(t, c, id, want)
		goesOn(t, c, id, was)
	}
	// In the middle of the tree one goes, with those below it none the worse.
	s, err := c.Session(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CloseSession(t.Context(), s.Parent); err != nil {
		t.Fatal(err)
	}
	delete(wants, s.Parent)
	for id, want := range wants {
		sandShelf.mustHold(t, c, id, want)
	}
	w.over(t)
}

// TestSandboxHTTP forks a server that speaks HTTP on a port of its sandbox: the
// copies have its memory, and know the session that it gave the gateway.
func TestSandboxHTTP(t *testing.T) {
	t.Parallel()
	w := startCell(t, "servers:\n"+yamlSand(t, []string{"-http", "127.0.0.1:8123"}, "sandbox: {transport: http, port: 8123}"))
	c := w.client(t)
	parent := openSession(t, c, api.NewSession{}).ID
	sandShelf.mustPut(t, c, parent, "k", "v")
	mustUse(t, c, parent, "sand__alarm", object{"key": "rang", "value": "yes", "ms": 300})
	was := mustLive(t, c, parent)
	children := fork(t, c, parent, 4)
	sandShelf.mustPut(t, c, parent, "late", parent)
	each(t, children, func(_ int, id string) error {
		sandShelf.mustPut(t, c, id, "own", id)
		goesOn(t, c, id, was)
		return rings(t, c, id, map[string]string{"k": "v", "own": id, "rang": "yes"})
	})
	if err := rings(t, c, parent, map[string]string{"k": "v", "late": parent, "rang": "yes"}); err != nil {
		t.Error(err)
	}
	goesOn(t, c, parent, was)
	deeper := fork(t, c, children[0].ID, 1)[0].ID
	sandShelf.mustHold(t, c, deeper, map[string]string{"k": "v", "own": children[0].ID, "rang": "yes"})
	goesOn(t, c, deeper, was)
	w.over(t)
}

// workers is the Python program with threads, programs, pipes and timers.
const workers = "testdata/servers/workers.py"

// TestSandboxWorkers forks servers that have programs and threads working for
// them: in each copy all of them go on from where they were.
func TestSandboxWorkers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, yaml string
	}{
		{"go", yamlSand(t, []string{"-crew"})},
		{"python", yamlServer(sand, need(t, python)[0], []string{absolute(t, workers)}, sandboxed)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := startCell(t, "servers:\n"+tt.yaml)
			c := w.client(t)
			parent := openSession(t, c, api.NewSession{}).ID
			did := func(id, what string, n int) error {
				text, err := use(t.Context(), c, id, "sand__work", object{"value": what})
				want := what + strings.Repeat(fmt.Sprint(" ", n), 5)
				if err == nil && text != want {
					err = fmt.Errorf("in %s they say %q, want %q", id, text, want)
				}
				return err
			}
			for n := range 3 {
				if err := did(parent, "before", n+1); err != nil {
					t.Fatal(err)
				}
			}
			mustUse(t, c, parent, "sand__alarm", object{"key": "rang", "value": "yes", "ms": 500})
			was := mustLive(t, c, parent)
			children := fork(t, c, parent, 4)
			if err := did(parent, "parent", 4); err != nil {
				t.Error(err)
			}
			each(t, children, func(n int, id string) error {
				for i := range n + 1 {
					if err := did(id, id, 4+i); err != nil {
						return err
					}
				}
				goesOn(t, c, id, was)
				return rings(t, c, id, map[string]string{"rang": "yes"})
			})
			if err := did(parent, "parent", 5); err != nil {
				t.Error(err)
			}
			w.over(t)
		})
	}
}

// TestSandboxReseed shows what copies have in common: they draw the same random
// numbers, unless they are told that they are copies and mend that.
func TestSandboxReseed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, entry string
		same        bool
		told        int
	}{
		{"untold", "", true, 0},
		{"notify", "on_fork: notify", false, 1},
		{"tool", "on_fork: tool reseed", false, 0},
		{"map", "on_fork: {tool: reseed}", false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var more []string
			if tt.entry != "" {
				more = append(more, tt.entry)
			}
			w := startCell(t, "servers:\n"+yamlSand(t, nil, more...))
			c := w.client(t)
			parent := openSession(t, c, api.NewSession{}).ID
			sandShelf.mustPut(t, c, parent, "k", "v")
			mustUse(t, c, parent, "sand__draw", object{})
			was := mustLive(t, c, parent)
			if was.Forked != 0 {
				t.Errorf("the original was told %d times that it is a copy", was.Forked)
			}
			all := fork(t, c, parent, 4)
			// One that was copied of a copy hears it again.
			deeper := fork(t, c, all[0].ID, 1)[0]
			drawn := map[string]int{}
			for _, id := range []string{parent, all[0].ID, all[1].ID, all[2].ID, all[3].ID, deeper.ID} {
				drawn[mustUse(t, c, id, "sand__draw", object{})]++
				now := goesOn(t, c, id, was)
				told := tt.told
				switch id {
				case parent:
					told = 0
				case deeper.ID:
					told *= 2
				}
				if now.Forked != told {
					t.Errorf("%s was told %d times that it is a copy, want %d", id, now.Forked, told)
				}
				sandShelf.mustHold(t, c, id, map[string]string{"k": "v"})
			}
			if want := 6; tt.same && len(drawn) != 1 || !tt.same && len(drawn) != want {
				t.Errorf("six sessions drew %v", drawn)
			}
			w.over(t)
		})
	}
}

// TestSandboxReseedFails has a server without the tool that its copies are to
// call: a fork says so, and the parent goes on.
func TestSandboxReseedFails(t *testing.T) {
	t.Parallel()
	w := startCell(t, "servers:\n"+yamlSand(t, nil, "on_fork: tool nonesuch"))
	c := w.client(t)
	parent := openSession(t, c, api.NewSession{}).ID
	sandShelf.mustPut(t, c, parent, "k", "v")
	was := mustLive(t, c, parent)
	_, err := c.Fork(t.Context(), parent, api.ForkRequest{Count: 2})
	var child string
	if err == nil {
		// The first call is when it is found out, where children start when they
		// are needed.
		child = fork(t, c, parent, 1)[0].ID
		_, err = use(t.Context(), c, child, "sand__all", object{})
	}
	if e := kindOf(err); e == nil || e.Kind != api.KindInfrastructure || !strings.Contains(e.Message, "nonesuch") || !strings.Contains(e.Message, "on_fork") {
		t.Errorf("a copy whose tool is missing: %v, want kind infrastructure with the tool and the setting", err)
	}
	goesOn(t, c, parent, was)
	sandShelf.mustHold(t, c, parent, map[string]string{"k": "v"})
	w.over(t)
}
