package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/driver"
)

// unpack makes a state from a snapshot that was imported into a folder.
func (d *Driver) unpack(ctx context.Context, e *engine, spec driver.Spec, dir string, from holding, progress func(done, total int64)) (err error) {
	if err := e.ensureImage(ctx, spec, logOf(spec, d)); err != nil {
		return err
	}
	m := d.newMaking(e, spec, spec.State)
	defer func() {
		if err != nil {
			err = errors.Join(err, m.undo(ctx))
		}
	}()
	for n, p := range from.Volumes {
		to, err := m.volume(ctx, p.Path)
		if err != nil {
			return err
		}
		if p.Fresh {
			continue
		}
		to.Fresh = false
		if err := m.fill(ctx, *to, filepath.Join(dir, pieceName(n)+".tar"), progress); err != nil {
			return fmt.Errorf("the volume of %s: %w", p.Path, err)
		}
	}
	if err := m.declared(ctx, from); err != nil {
		return err
	}
	if from.Root {
		if err := m.unpackRoot(ctx, dir); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return m.write(spec.State)
}

// fill puts an archive onto a volume.
func (m *making) fill(ctx context.Context, p piece, archive string, progress func(done, total int64)) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	id, remove, err := m.e.helper(ctx, m.spec, m.Base, []mount.Mount{plainMount(p.Volume, placeTo)})
	if err != nil {
		return err
	}
	defer remove()
	in := io.TeeReader(f, &counter{ctx: ctx, progress: progress})
	if _, err := m.e.cli.CopyToContainer(ctx, id, client.CopyToContainerOptions{DestinationPath: placeTo, Content: in}); err != nil {
		return m.e.explain("write files to a volume", err)
	}
	return nil
}

// unpackRoot makes an image of an imported root, once for all that are made from
// it: it belongs to the snapshot, and each of them has a name of its own for it.
func (m *making) unpackRoot(ctx context.Context, dir string) error {
	leave, err := m.d.turns.enter(ctx, "snapshot "+dir)
	if err != nil {
		return err
	}
	defer leave()
	h, err := readHolding(dir)
	if err != nil {
		return err
	}
	if h.Image != "" && h.Host == m.e.host {
		return m.tag(ctx, h.Image)
	}
	f, err := os.Open(filepath.Join(dir, exportRoot+".tar"))
	if errors.Is(err, os.ErrNotExist) {
		return nil // the root is that of the config's image
	}
	if err != nil {
		return err
	}
	defer f.Close()
	base, err := m.e.cli.ImageInspect(ctx, m.Base)
	if err != nil {
		return m.e.explain("look at the image", err)
	}
	owner := m.d.newMaking(m.e, m.spec, dir)
	tag := m.d.newTag()
	m.d.claim(tag)
	owner.Image = tag
	changes := append(runConfig(base), labelChanges(m.d.labels(m.spec, roleState, owner.key))...)
	if err := m.e.importImage(ctx, io.TeeReader(f, &counter{ctx: ctx}), tag, changes); err != nil {
		return err
	}
	if h.Image == "" {
		h.Image, h.Host = tag, m.e.host
		if err := h.write(dir); err != nil {
			return errors.Join(err, owner.undo(ctx))
		}
		return m.tag(ctx, tag)
	}
	m.Image = tag // of another engine than the snapshot's
	return nil
}

// importImage makes an image of the files of a root.
func (e *engine) importImage(ctx context.Context, root io.Reader, tag string, changes []string) error {
	res, err := e.cli.ImageImport(ctx, client.ImageImportSource{Source: root, SourceName: "-"}, tag, client.ImageImportOptions{Changes: changes})
	if err != nil {
		return e.explain("make an image", err)
	}
	defer res.Close()
	if err := streamError(res); err != nil {
		return e.explain("make an image", err)
	}
	return nil
}
