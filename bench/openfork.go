package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// samples is how many opens or forks of one case are timed in a round.
const samples = 10

// smallWorkspace is the bytes in the smaller workspace.
const smallWorkspace = 1000

// workspaceFiles is how many files the larger workspace has.
const workspaceFiles = 2000

// sizedWorld is a gateway whose sessions begin with a workspace of some size.
type sizedWorld struct {
	*world
	size string
}

// sized makes the two gateways, once.
func (t *trials) sized(ctx context.Context) ([]*sizedWorld, error) {
	if t.worlds != nil {
		return t.worlds, nil
	}
	large, note := roomFor(t.g.dir, t.s.Workspace*1e6)
	if note != "" {
		t.notes = append(t.notes, note)
	}
	if large < 1e6 {
		return nil, fmt.Errorf("there is no room for a large workspace in %s; set TMPDIR to a disk with more", t.g.dir)
	}
	var worlds []*sizedWorld
	for _, c := range []struct {
		bytes int64
		files int
	}{{smallWorkspace, 1}, {large, workspaceFiles}} {
		name := fmt.Sprintf("workspace-%d", c.bytes)
		template := filepath.Join(t.g.dir, name+"-template")
		if err := makeTree(template, c.files, c.bytes); err != nil {
			return nil, err
		}
		w, err := t.g.newWorld(ctx, name, statefulServers(template))
		if err != nil {
			return nil, err
		}
		// The first use takes the template in; it is not what an open costs.
		began := time.Now()
		first, err := w.open(ctx)
		if err == nil {
			_, err = w.use(ctx, first)
		}
		if err != nil {
			return nil, err
		}
		t.notes = append(t.notes, fmt.Sprintf("a template of %s in %d files was taken in in %.2f s, once", sizeName(c.bytes), c.files, time.Since(began).Seconds()))
		worlds = append(worlds, &sizedWorld{w, sizeName(c.bytes)})
	}
	flushDisks()
	t.worlds = worlds
	return worlds, nil
}

// open times opens, and opens with the first use of all three servers.
func (t *trials) open(ctx context.Context) ([]reading, error) {
	worlds, err := t.sized(ctx)
	if err != nil {
		return nil, err
	}
	var opens, uses []*series
	for _, w := range worlds {
		opens = append(opens, &series{name: "open, " + w.size})
		uses = append(uses, &series{name: "open and first use, " + w.size, use: true})
	}
	for round := range t.s.Rounds {
		for i := range worlds {
			i = (i + round) % len(worlds)
			w := worlds[i]
			for range samples {
				began := time.Now()
				id, err := w.open(ctx)
				if err != nil {
					return nil, err
				}
				opens[i].add(time.Since(began))
				mark, err := w.use(ctx, id)
				if err != nil {
					return nil, err
				}
				uses[i].add(time.Since(began))
				if err := w.remembers(ctx, id, mark); err != nil {
					return nil, err
				}
				if err := w.close(ctx, id); err != nil {
					return nil, err
				}
			}
			opens[i].endRound()
			uses[i].endRound()
		}
	}
	return compared(opens, uses), nil
}

// compared makes readings of cases, each against the first of its list.
func compared(lists ...[]*series) []reading {
	var out []reading
	for _, list := range lists {
		for _, s := range list {
			out = append(out, s.against(list[0]))
		}
	}
	return out
}

// lineage is where forks of one case are made from: a session one fork short of
// the depth of those that are forked in turn.
type lineage struct {
	*sizedWorld
	grandparent string // empty where the parent is opened anew
}

// parent makes a session that nobody forked yet, and uses it.
func (l *lineage) parent(ctx context.Context) (id, mark string, err error) {
	if l.grandparent == "" {
		id, err = l.open(ctx)
	} else {
		var ids []string
		if ids, err = l.fork(ctx, l.grandparent, 1); err == nil {
			id = ids[0]
		}
	}
	if err == nil {
		mark, err = l.use(ctx, id)
	}
	return id, mark, err
}

// descend makes a line of sessions, each forked from the one before and used,
// and returns the last one.
func (w *world) descend(ctx context.Context, forks int) (string, error) {
	id, err := w.open(ctx)
	if err != nil {
		return "", err
	}
	for range forks {
		if _, err := w.use(ctx, id); err != nil {
			return "", err
		}
		ids, err := w.fork(ctx, id, 1)
		if err != nil {
			return "", err
		}
		id = ids[0]
	}
	_, err = w.use(ctx, id)
	return id, err
}

// fork times forks, and forks with the first use of all three servers in the
// child.
func (t *trials) fork(ctx context.Context) ([]reading, error) {
	worlds, err := t.sized(ctx)
	if err != nil {
		return nil, err
	}
	var lines []*lineage
	var forks, uses []*series
	for _, deep := range []int{1, t.s.Depth} {
		for _, w := range worlds {
			l := &lineage{sizedWorld: w}
			if deep > 1 {
				if l.grandparent, err = w.descend(ctx, deep-2); err != nil {
					return nil, err
				}
			}
			lines = append(lines, l)
			name := fmt.Sprintf("%s, %d deep", w.size, deep)
			forks = append(forks, &series{name: "fork, " + name})
			uses = append(uses, &series{name: "fork and first use, " + name, use: true})
		}
	}
	for round := range t.s.Rounds {
		for i := range lines {
			i = (i + round) % len(lines)
			for range samples {
				if err := lines[i].sample(ctx, forks[i], uses[i]); err != nil {
					return nil, err
				}
			}
			forks[i].endRound()
			uses[i].endRound()
		}
	}
	return compared(forks, uses), nil
}

// sample times one fork, and looks whether the child has what the parent had.
func (l *lineage) sample(ctx context.Context, fork, use *series) error {
	parent, mark, err := l.parent(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	ids, err := l.fork(ctx, parent, 1)
	if err != nil {
		return err
	}
	fork.add(time.Since(began))
	if err := l.remembers(ctx, ids[0], mark); err != nil {
		return err
	}
	use.add(time.Since(began))
	return l.close(ctx, parent, ids[0])
}
