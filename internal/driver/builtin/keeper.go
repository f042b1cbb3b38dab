package builtin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/layer"
)

// frozen is what a snapshot of this driver says of itself.
type frozen struct {
	Builtin string    `json:"builtin"`
	ID      string    `json:"id,omitempty"` // empty where there is no state
	Layer   layer.Ref `json:"layer,omitzero"`
}

func thaw(s driver.Snapshot) (frozen, error) {
	var f frozen
	if s.Driver != Name {
		return f, fmt.Errorf("server %q: the snapshot is of the driver %q: %w", s.Server, s.Driver, driver.ErrUnfit)
	}
	if err := json.Unmarshal(s.Data, &f); err != nil {
		return f, fmt.Errorf("server %q: read its snapshot: %w", s.Server, err)
	}
	return f, nil
}

// Carries implements [driver.Keeper]: nothing is lost in a fork, also of what
// remembers nothing.
func (d *Driver) Carries(spec driver.Spec) (carries, why string) {
	if _, ok := d.kinds[spec.Builtin]; !ok {
		return driver.CarryNone, d.unknown(spec).Error()
	}
	return driver.CarryMemory, ""
}

// Remembers implements [driver.Rememberer].
func (d *Driver) Remembers(spec driver.Spec) bool { return d.kinds[spec.Builtin].Remembers }

// Seed implements [driver.Keeper].
func (d *Driver) Seed(ctx context.Context, spec driver.Spec, src driver.Source) error {
	kind, err := d.kind(spec)
	if err != nil {
		return err
	}
	var ref layer.Ref
	switch {
	case src.From != nil:
		f, err := thaw(*src.From)
		if err != nil {
			return err
		}
		if f.Builtin != spec.Builtin {
			return fmt.Errorf("server %q: its snapshot is of the built-in server %q, and it is %q now", spec.Server, f.Builtin, spec.Builtin)
		}
		ref = f.Layer
	case spec.Template != "" && kind.Import == nil:
		return fmt.Errorf("server %q: built-in server %q takes no template; remove servers.%s.template", spec.Server, spec.Builtin, spec.Server)
	case spec.Template != "":
		if ref, err = d.template(ctx, spec, kind, src.Progress); err != nil {
			return fmt.Errorf("server %q: %w", spec.Server, err)
		}
		defer d.layers.Release(ref) // by then the state holds it
	}
	if !kind.Remembers {
		return nil
	}
	if err := d.layers.Create(spec.State, ref); err != nil {
		os.Remove(spec.State)
		return fmt.Errorf("server %q: seed its state: %w", spec.Server, d.lost(spec, err))
	}
	return nil
}

// Freeze implements [driver.Keeper]. The folder dir is not needed.
func (d *Driver) Freeze(ctx context.Context, spec driver.Spec, _ driver.Instance, _ string) (driver.Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return driver.Snapshot{}, fmt.Errorf("server %q: freeze: %w", spec.Server, err)
	}
	kind, err := d.kind(spec)
	if err != nil {
		return driver.Snapshot{}, err
	}
	if !kind.Remembers {
		return d.snapshot(spec.Server, frozen{Builtin: spec.Builtin})
	}
	ref, err := d.layers.Seal(spec.State)
	if err != nil {
		return driver.Snapshot{}, fmt.Errorf("server %q: freeze its state: %w", spec.Server, d.lost(spec, err))
	}
	return d.snapshot(spec.Server, frozen{Builtin: spec.Builtin, ID: rand.Text(), Layer: ref})
}

// snapshot takes over a reference to the layer.
func (d *Driver) snapshot(server string, f frozen) (driver.Snapshot, error) {
	fail := func(err error) (driver.Snapshot, error) {
		return driver.Snapshot{}, errors.Join(fmt.Errorf("server %q: write its snapshot: %w", server, err), d.release(f.Layer))
	}
	var size int64
	if f.Layer != (layer.Ref{}) {
		var err error
		if size, _, err = d.layers.Size(f.Layer); err != nil {
			return fail(err)
		}
	}
	data, err := json.Marshal(f)
	if err != nil {
		return fail(err)
	}
	if f.Layer != (layer.Ref{}) {
		d.mu.Lock()
		d.snapshots[f.ID] = f.Layer
		d.mu.Unlock()
	}
	return driver.Snapshot{Driver: Name, Server: server, Carries: driver.CarryMemory, Data: data, Size: size}, nil
}

func (d *Driver) release(ref layer.Ref) error {
	if ref == (layer.Ref{}) {
		return nil
	}
	return d.layers.Release(ref)
}

// Discard implements [driver.Keeper].
func (d *Driver) Discard(_ context.Context, s driver.Snapshot) error {
	f, err := thaw(s)
	if err != nil {
		return err
	}
	d.mu.Lock()
	ref := d.snapshots[f.ID]
	delete(d.snapshots, f.ID)
	d.mu.Unlock()
	if err := d.release(ref); err != nil && !errors.Is(err, layer.ErrUnknown) {
		return fmt.Errorf("server %q: discard its snapshot: %w", s.Server, err)
	}
	return nil
}

// Erase implements [driver.Keeper].
func (d *Driver) Erase(_ context.Context, spec driver.Spec) error {
	if spec.State == "" {
		return nil
	}
	if d.layers != nil {
		if err := d.layers.Remove(spec.State); err != nil {
			return fmt.Errorf("server %q: erase its state: %w", spec.Server, err)
		}
	}
	if err := os.RemoveAll(spec.State); err != nil {
		return fmt.Errorf("server %q: erase its state: %w", spec.Server, err)
	}
	return nil
}

// exported is the first line of an export. What follows it are the layers,
// where there are any.
type exported struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Builtin string `json:"builtin"`
	Layers  bool   `json:"layers"`
}

const (
	exportFormat  = "tine built-in server"
	exportVersion = 1
	exportLine    = 4 << 10
)

// CheckExport implements [driver.Keeper]. Whether a layer is whole is known when it
// was read.
func (d *Driver) CheckExport(context.Context, driver.Snapshot) error { return nil }

// Export implements [driver.Keeper].
func (d *Driver) Export(ctx context.Context, s driver.Snapshot, w io.Writer) error {
	f, err := thaw(s)
	if err != nil {
		return err
	}
	head, err := json.Marshal(exported{exportFormat, exportVersion, f.Builtin, f.Layer != (layer.Ref{})})
	if err == nil {
		_, err = w.Write(append(head, '\n'))
	}
	if err == nil && f.Layer != (layer.Ref{}) {
		err = d.layers.Export(f.Layer, bounded{ctx, nil, w})
	}
	if err != nil {
		return fmt.Errorf("server %q: export its snapshot: %w", s.Server, driver.Damaged(driver.Whose{Server: s.Server}, err))
	}
	return nil
}

// Import implements [driver.Keeper].
func (d *Driver) Import(ctx context.Context, server, _ string, r io.Reader) (driver.Snapshot, error) {
	fail := func(err error) (driver.Snapshot, error) {
		return driver.Snapshot{}, fmt.Errorf("server %q: import a snapshot: %w", server, err)
	}
	in := bufio.NewReaderSize(bounded{ctx, r, nil}, exportLine)
	line, err := in.ReadSlice('\n')
	if err != nil {
		return fail(fmt.Errorf("it has no first line that says what it is: %w", err))
	}
	var head exported
	if err := json.Unmarshal(bytes.TrimSpace(line), &head); err != nil || head.Format != exportFormat {
		return fail(errors.New("it is not a snapshot of a built-in server"))
	}
	if head.Version != exportVersion {
		return fail(fmt.Errorf("it is of version %d, and this Tine reads %d", head.Version, exportVersion))
	}
	kind, ok := d.kinds[head.Builtin]
	if !ok {
		return fail(fmt.Errorf("it is of the built-in server %q, which this Tine does not have", head.Builtin))
	}
	if head.Layers && !kind.Remembers {
		return fail(fmt.Errorf("the built-in server %q remembers nothing, and it has something", head.Builtin))
	}
	f := frozen{Builtin: head.Builtin}
	if kind.Remembers {
		f.ID = rand.Text()
	}
	if head.Layers {
		if f.Layer, err = d.layers.Import(in); err != nil {
			return fail(err)
		}
	}
	return d.snapshot(server, f)
}

// bounded is a reader or writer that fails when its context has ended.
type bounded struct {
	ctx context.Context
	r   io.Reader
	w   io.Writer
}

func (b bounded) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.r.Read(p)
}

func (b bounded) Write(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.w.Write(p)
}

// Recover implements [driver.Keeper]. Templates are imported again when they are
// needed, since they may have changed.
func (d *Driver) Recover(_ context.Context, states []string, snapshots []driver.Snapshot, sure bool) error {
	if d.dir != "" {
		left, err := os.ReadDir(d.dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("built-in servers: recover: %w", err)
		}
		for _, e := range left {
			if err := os.RemoveAll(filepath.Join(d.dir, e.Name())); err != nil {
				return fmt.Errorf("built-in servers: recover: %w", err)
			}
		}
	}
	if d.layers == nil {
		return nil
	}
	var refs []layer.Ref
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range snapshots {
		if s.Driver != Name {
			continue
		}
		f, err := thaw(s)
		if err != nil {
			return err
		}
		if f.Layer != (layer.Ref{}) {
			refs = append(refs, f.Layer)
			d.snapshots[f.ID] = f.Layer
		}
	}
	recover := d.layers.Recover
	if !sure {
		recover = d.layers.RecoverSome
	}
	if err := recover(states, refs); err != nil {
		return fmt.Errorf("built-in servers: recover: %w", err)
	}
	return nil
}
