package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	moby "github.com/moby/moby/client"
)

// forked is a session, and a container made by hand, that are forked in turn.
type forked struct {
	containerKind
	pair
	session string
	parent  *rawContainer
	path    string // of the parent's volume on this machine
}

// rolloutFork times forks of a session with one server in a container, and in turn
// what anybody would do by hand: commit the container, or copy its volume while
// it is paused, and start another one.
func (t *trials) rolloutFork(ctx context.Context) (_ []reading, err error) {
	c, err := t.contain(ctx, "rollout-fork", true)
	if err != nil {
		return nil, err
	}
	defer c.end(&err)
	var cases []*forked
	defer func() {
		for _, f := range cases {
			err = errors.Join(err, f.parent.remove())
			if err == nil { // else the sweep removes what is there
				err = c.close(ctx, f.session)
			}
		}
	}()
	var out [][]*series
	for _, k := range containerKinds {
		if !k.carried() {
			continue
		}
		f, why, err := c.parents(ctx, k)
		if err != nil {
			return nil, err
		}
		if why != "" {
			t.notes = append(t.notes, why)
			continue
		}
		cases, out = append(cases, f), append(out, f.list())
	}
	flushDisks()
	for round := range t.s.Rounds {
		for _, f := range cases {
			if err := f.round(containerSamples, round,
				func() error { return c.forkRaw(ctx, f) },
				func() error { return c.forkTine(ctx, f) },
			); err != nil {
				return nil, err
			}
		}
	}
	return compared(out...), nil
}

// parents opens the session and makes the container that are forked. It says why
// where that can't be done by hand here.
func (c *containers) parents(ctx context.Context, k containerKind) (_ *forked, why string, err error) {
	size := sizeName(stateBytes)
	f := &forked{containerKind: k}
	if f.parent, err = c.raw(ctx, k, c.tree); err != nil {
		return nil, "", err
	}
	f.pair = newPair("commit and run, "+size+" in the root", "fork, "+size+" in the root")
	if f.parent.volume != "" {
		f.pair = newPair("cp -a and run, "+size+" in a volume", "fork, "+size+" in a volume")
		v, err := c.e.cli.VolumeInspect(ctx, f.parent.volume, moby.VolumeInspectOptions{})
		if err != nil {
			return nil, "", errors.Join(err, f.parent.remove())
		}
		f.path = v.Volume.Mountpoint
		if _, err := os.ReadDir(f.path); err != nil {
			return nil, fmt.Sprintf("without forks of volumes: they can't be copied by hand: %v", err), f.parent.remove()
		}
	}
	if f.session, err = c.eager(ctx, k.server); err != nil {
		return nil, "", errors.Join(err, f.parent.remove())
	}
	return f, "", nil
}

// newMark is a word that nobody was told before.
func (w *world) newMark() string { return fmt.Sprintf("mark-%08d", w.stamp.Add(1)) }

// forkRaw has the parent write down a word and times a copy of it, until its
// server has answered.
func (c *containers) forkRaw(ctx context.Context, f *forked) error {
	mark := c.newMark()
	if _, err := f.parent.tell(ctx, "put", fmt.Sprintf(`{"key":"mark","value":%q}`, mark)); err != nil {
		return err
	}
	began := time.Now()
	var made *rawContainer
	var err error
	if f.path != "" {
		made, err = c.copyVolume(ctx, f)
	} else {
		made, err = c.commit(ctx, f)
	}
	if err != nil {
		return err
	}
	f.raw.add(time.Since(began))
	got, err := made.tell(ctx, "all", "{}")
	return errors.Join(knows(got, mark, err), made.remove())
}

func (c *containers) commit(ctx context.Context, f *forked) (*rawContainer, error) {
	tag := "localhost/tine-bench:" + c.e.owner + "-" + fmt.Sprint(c.stamp.Add(1))
	if _, err := c.e.cli.ContainerCommit(ctx, f.parent.id, moby.ContainerCommitOptions{Reference: tag}); err != nil {
		return nil, fmt.Errorf("commit a container: %w", err)
	}
	made, err := c.e.start(ctx, layout{image: tag, dir: f.dir, root: true})
	if err != nil {
		return nil, err
	}
	made.image = tag
	return made, nil
}

func (c *containers) copyVolume(ctx context.Context, f *forked) (_ *rawContainer, err error) {
	name, path, err := c.e.newVolume(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.e.cli.ContainerPause(ctx, f.parent.id, moby.ContainerPauseOptions{}); err != nil {
		return nil, fmt.Errorf("pause a container: %w", err)
	}
	out, cerr := exec.CommandContext(ctx, "cp", "-a", strings.TrimSuffix(f.path, "/")+"/.", path).CombinedOutput()
	if _, err := c.e.cli.ContainerUnpause(ctx, f.parent.id, moby.ContainerUnpauseOptions{}); err != nil {
		return nil, fmt.Errorf("let a container go on: %w", err)
	}
	if cerr != nil {
		return nil, fmt.Errorf("copy a volume with cp -a: %w: %s", cerr, out)
	}
	return c.e.start(ctx, layout{image: staticImage, dir: f.dir, volume: name})
}

// forkTine does the same with the session.
func (c *containers) forkTine(ctx context.Context, f *forked) error {
	mark := c.newMark()
	if err := c.put(ctx, f.session, f.server, mark); err != nil {
		return err
	}
	began := time.Now()
	ids, err := c.fork(ctx, f.session, 1)
	if err != nil {
		return err
	}
	took := time.Since(began)
	if err := c.started(ctx, ids[0], f.server); err != nil {
		return err
	}
	if err := c.keeps(ctx, ids[0], f.server, mark); err != nil {
		return err
	}
	f.tine.add(took)
	return c.close(ctx, ids...)
}
