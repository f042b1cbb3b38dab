package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
)

// What the state of a forked container has in it.
const (
	stateFiles = 100
	stateBytes = 10e6
)

// containerSamples is how many opens or forks of one case are timed in a round.
const containerSamples = 2

// provisioned is how many sessions are opened at once.
const provisioned = 32

// containerKind is one way for a server in a container to have state.
type containerKind struct {
	server string
	state  []string // as the config has it
	dir    string   // of what the server is told
}

var containerKinds = []containerKind{
	{"none", nil, "/tmp"},
	{"volume", []string{"/data"}, "/data"},
	{"root", []string{"root"}, "/data"},
}

func (k containerKind) carried() bool { return len(k.state) > 0 }

// containers is an engine and a gateway whose servers are in its containers.
type containers struct {
	*world
	e    *rawEngine
	tree string // that states begin with; empty for nothing
}

// contain starts a gateway with a server of each kind. The states of its sessions
// begin with a tree of files where they are to be forked.
func (t *trials) contain(ctx context.Context, name string, filled bool) (*containers, error) {
	e, err := dialEngine(ctx)
	if err != nil {
		return nil, err
	}
	c := &containers{e: e}
	if filled {
		c.tree = filepath.Join(t.g.dir, name+"-tree")
		if err := makeTree(c.tree, stateFiles, stateBytes); err != nil {
			return nil, errors.Join(err, e.cli.Close())
		}
	}
	if _, err := e.sweep(false); err != nil {
		return nil, errors.Join(fmt.Errorf("remove what an earlier run left: %w", err), e.cli.Close())
	}
	servers := map[string]any{}
	for _, k := range containerKinds {
		docker := map[string]any{
			"host": e.host, "image": staticImage, "pull": "never",
			"entrypoint": layout{dir: k.dir}.program(), "labels": map[string]string{benchLabel: e.owner},
		}
		entry := map[string]any{"docker": docker}
		if k.carried() {
			docker["state"] = k.state
			if filled {
				docker["template_path"], entry["template"] = k.dir, c.tree
			}
		}
		servers[k.server] = entry
	}
	if c.world, err = t.g.newWorld(ctx, name, map[string]any{"servers": servers, "sessions": unbounded()}); err != nil {
		return nil, errors.Join(err, e.cli.Close())
	}
	return c, nil
}

// end stops the gateway, and makes an error of what is still in the engine after
// all went well. Sessions outlive their gateway where it did not.
func (c *containers) end(err *error) {
	c.gate.stop()
	found, serr := c.e.sweep(true)
	if len(found) > 0 && *err == nil {
		serr = errors.Join(serr, fmt.Errorf("left in the engine: %s", strings.Join(found, ", ")))
	}
	*err = errors.Join(*err, serr, c.e.cli.Close())
}

// eager opens a session and waits until its one server has answered.
func (c *containers) eager(ctx context.Context, server string) (string, error) {
	s, err := c.client.OpenSession(ctx, api.NewSession{Servers: []string{server}, Eager: true})
	if err != nil {
		return "", c.gate.explain(fmt.Errorf("open a session with a container: %w", err))
	}
	return s.ID, nil
}

// raw starts a container of a kind, with a volume of its own where it has one.
func (c *containers) raw(ctx context.Context, k containerKind, tree string) (*rawContainer, error) {
	l := layout{image: staticImage, dir: k.dir, root: k.server == "root", tree: tree}
	if k.server == "volume" {
		var err error
		if l.volume, _, err = c.e.newVolume(ctx); err != nil {
			return nil, err
		}
	}
	return c.e.start(ctx, l)
}

// put has the server of a session write down a word.
func (c *containers) put(ctx context.Context, session, server, word string) error {
	_, err := c.call(ctx, session, server+"__put", map[string]any{"key": "mark", "value": word})
	return err
}

// keeps says whether the server of a session knows a word.
func (c *containers) keeps(ctx context.Context, session, server, word string) error {
	got, err := c.call(ctx, session, server+"__all", struct{}{})
	return knows(got, word, err)
}

func knows(answer, word string, err error) error {
	if err == nil && !strings.Contains(answer, word) {
		err = fmt.Errorf("a server does not know %s: %.300s", word, answer)
	}
	return err
}

// rolloutOpen times sessions with one server in a container, and in turn the same
// container made by hand.
func (t *trials) rolloutOpen(ctx context.Context) (_ []reading, err error) {
	c, err := t.contain(ctx, "rollout-open", false)
	if err != nil {
		return nil, err
	}
	defer c.end(&err)
	pairs := map[string]pair{}
	var out [][]*series
	for _, k := range containerKinds {
		pairs[k.server] = newPair("engine alone, state: "+k.server, "open, state: "+k.server)
		out = append(out, pairs[k.server].list())
	}
	for round := range t.s.Rounds {
		for _, k := range containerKinds {
			p := pairs[k.server]
			if err := p.round(containerSamples, round,
				func() error { return c.openRaw(ctx, k, p.raw) },
				func() error { return c.openTine(ctx, k, p.tine) },
			); err != nil {
				return nil, err
			}
		}
	}
	return compared(out...), nil
}

func (c *containers) openRaw(ctx context.Context, k containerKind, s *series) error {
	began := time.Now()
	made, err := c.raw(ctx, k, "")
	if err != nil {
		return err
	}
	s.add(time.Since(began))
	got, err := made.tell(ctx, "put", `{"key":"mark","value":"by-hand"}`)
	return errors.Join(knows(got, "by-hand", err), made.remove())
}

func (c *containers) openTine(ctx context.Context, k containerKind, s *series) error {
	began := time.Now()
	id, err := c.eager(ctx, k.server)
	if err != nil {
		return err
	}
	s.add(time.Since(began))
	if err := c.started(ctx, id, k.server); err != nil {
		return err
	}
	if err := c.put(ctx, id, k.server, "by-tine"); err != nil {
		return err
	}
	if err := c.keeps(ctx, id, k.server, "by-tine"); err != nil {
		return err
	}
	return c.close(ctx, id)
}

// provision times many sessions that are asked for at once, until the last is
// there, and in turn as many containers.
func (t *trials) provision(ctx context.Context) (_ []reading, err error) {
	const repeats = 3
	c, err := t.contain(ctx, "rollout-provision", false)
	if err != nil {
		return nil, err
	}
	defer c.end(&err)
	n := min(provisioned, t.s.Sessions)
	k := containerKinds[0]
	p := newPair(fmt.Sprintf("engine alone, %d at once", n), fmt.Sprintf("open, %d at once", n))
	for round := range min(t.s.Rounds, repeats) {
		if err := p.round(1, round,
			func() error { return c.manyRaw(ctx, k, n, p.raw) },
			func() error { return c.manyTine(ctx, k, n, p.tine) },
		); err != nil {
			return nil, err
		}
	}
	return compared(p.list()), nil
}

// allAtOnce does something n times with nobody waiting for another.
func allAtOnce(n int, do func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (c *containers) manyRaw(ctx context.Context, k containerKind, n int, s *series) error {
	made := make([]*rawContainer, n)
	began := time.Now()
	err := allAtOnce(n, func(i int) (err error) {
		made[i], err = c.raw(ctx, k, "")
		return err
	})
	if err == nil {
		s.add(time.Since(began))
	}
	return errors.Join(err, allAtOnce(n, func(i int) error {
		if made[i] == nil {
			return nil
		}
		return made[i].remove()
	}))
}

func (c *containers) manyTine(ctx context.Context, k containerKind, n int, s *series) error {
	ids := make([]string, n)
	began := time.Now()
	err := allAtOnce(n, func(i int) (err error) {
		ids[i], err = c.eager(ctx, k.server)
		return err
	})
	if err != nil {
		return err
	}
	s.add(time.Since(began))
	for _, id := range ids {
		if err := c.started(ctx, id, k.server); err != nil {
			return err
		}
	}
	return c.close(ctx, ids...)
}
