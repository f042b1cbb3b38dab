package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/driver"
)

// making is a holding that is being made: what it has so far is removed where it
// fails.
type making struct {
	holding
	d    *Driver
	e    *engine
	spec driver.Spec
	key  string
	size int64
}

func (d *Driver) newMaking(e *engine, spec driver.Spec, dir string) *making {
	m := &making{d: d, e: e, spec: spec, key: keyOf(dir)}
	m.holding = holding{Kind: recordState, Host: e.host, Root: options(spec).Root(), Base: options(spec).Image}
	return m
}

// undo removes what was made.
func (m *making) undo(ctx context.Context) error {
	after, cancel := afterwards(ctx)
	defer cancel()
	if err := m.d.release(after, m.holding); err != nil {
		if away(err) {
			h := m.holding
			m.d.later("state "+m.key, func(ctx context.Context) error { return m.d.release(ctx, h) })
		}
		return err
	}
	return nil
}

// volume makes an empty volume for a path.
func (m *making) volume(ctx context.Context, path string) (*piece, error) {
	name := newName("state", m.spec.Server)
	m.d.claim(name)
	m.Volumes = append(m.Volumes, piece{Path: path, Volume: name, Fresh: true})
	_, err := m.e.cli.VolumeCreate(ctx, client.VolumeCreateOptions{Name: name, Labels: m.d.labels(m.spec, roleState, m.key)})
	if err != nil {
		return nil, m.e.explain("make a volume", err)
	}
	return &m.Volumes[len(m.Volumes)-1], nil
}

// tag gives an image a name that belongs to the holding.
func (m *making) tag(ctx context.Context, image string) error {
	tag := m.d.newTag()
	m.d.claim(tag)
	if _, err := m.e.cli.ImageTag(ctx, client.ImageTagOptions{Source: image, Target: tag}); err != nil {
		m.d.disclaim(tag)
		return m.e.explain("name an image", err)
	}
	m.Image = tag
	return nil
}

// copyHolding makes in a folder a copy of what another has.
func (d *Driver) copyHolding(ctx context.Context, e *engine, spec driver.Spec, from holding, dir string, progress func(done, total int64)) (size int64, err error) {
	m := d.newMaking(e, spec, dir)
	m.Base = from.Base
	defer func() {
		if err != nil {
			err = errors.Join(err, m.undo(ctx))
		}
	}()
	for _, p := range from.Volumes {
		to, err := m.volume(ctx, p.Path)
		if err != nil {
			return 0, err
		}
		if p.Fresh {
			continue
		}
		to.Fresh = false
		n, err := e.copyVolume(ctx, spec, from.Base, p.Volume, to.Volume, progress)
		if err != nil {
			return 0, fmt.Errorf("copy the volume of %s: %w", p.Path, err)
		}
		m.size += n
	}
	if err := m.declared(ctx, from); err != nil {
		return 0, err
	}
	switch {
	case !from.Root:
	case from.Container != "":
		err = m.commit(ctx, from.Container)
	case from.Image != "":
		err = m.tag(ctx, from.Image)
	}
	if err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return m.size, m.write(dir)
}

// declared makes volumes for paths that the config has and the other did not.
func (m *making) declared(ctx context.Context, from holding) error {
	if m.Root {
		return nil
	}
	for _, path := range missing(m.spec, from) {
		if _, err := m.volume(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// missing are the paths of a spec that a holding does not have.
func missing(spec driver.Spec, from holding) []string {
	var all []string
	for _, path := range options(spec).State {
		if !options(spec).Root() && !slices.ContainsFunc(from.Volumes, func(p piece) bool { return p.Path == path }) {
			all = append(all, path)
		}
	}
	return all
}

// regrow makes a state from a snapshot.
func (d *Driver) regrow(ctx context.Context, spec driver.Spec, s driver.Snapshot, from holding, progress func(done, total int64)) error {
	host := from.Host
	if from.Files {
		host = options(spec).Host
	}
	e, err := d.engine(host)
	if err != nil {
		return err
	}
	if _, err := e.ready(ctx); err != nil {
		return err
	}
	if from.Files {
		return d.unpack(ctx, e, spec, s.Dir, from, progress)
	}
	_, err = d.copyHolding(ctx, e, spec, from, spec.State, progress)
	return err
}

// plant makes a state from the spec's template, or from nothing.
func (d *Driver) plant(ctx context.Context, spec driver.Spec, progress func(done, total int64)) (err error) {
	e, err := d.engine(options(spec).Host)
	if err != nil {
		return err
	}
	if _, err := e.ready(ctx); err != nil {
		return err
	}
	if err := e.ensureImage(ctx, spec, logOf(spec, d)); err != nil {
		return err
	}
	m := d.newMaking(e, spec, spec.State)
	defer func() {
		if err != nil {
			err = errors.Join(err, m.undo(ctx))
		}
	}()
	paths, err := d.paths(ctx, e, spec)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if _, err := m.volume(ctx, path); err != nil {
			return err
		}
	}
	owner, err := e.owner(ctx, spec)
	if err != nil {
		return err
	}
	if spec.Template != "" {
		if err := m.template(ctx, owner, progress); err != nil {
			return fmt.Errorf("template %q: %w", spec.Template, err)
		}
	}
	if owner != (person{}) {
		for _, p := range m.Volumes {
			if p.Fresh {
				if err := m.give(ctx, p, owner); err != nil {
					return err
				}
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return m.write(spec.State)
}
