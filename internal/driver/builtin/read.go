package builtin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/layer"
)

var _ driver.StateReader = (*Driver)(nil)

// Reads implements [driver.StateReader].
func (d *Driver) Reads(spec driver.Spec) bool {
	k := d.kinds[spec.Builtin]
	return k.Remembers && k.Read != nil
}

// ReadState implements [driver.StateReader]. It reads a state of its own that begins where
// the other is, as a fork would.
func (d *Driver) ReadState(ctx context.Context, spec driver.Spec, from *driver.Snapshot, each func(driver.Item) error) (err error) {
	kind, err := d.kind(spec)
	if err != nil {
		return err
	}
	var ref layer.Ref
	if from != nil {
		f, err := thaw(*from)
		if err != nil {
			return err
		}
		if f.Builtin != spec.Builtin {
			return fmt.Errorf("server %q: its snapshot is of the built-in server %q, and it is %q now", spec.Server, f.Builtin, spec.Builtin)
		}
		ref = f.Layer
	} else {
		if ref, err = d.layers.Seal(spec.State); err != nil {
			return fmt.Errorf("server %q: read its state: %w", spec.Server, err)
		}
		defer func() { err = errors.Join(err, d.release(ref)) }()
	}
	env := d.env(spec)
	env.State, env.Workspace = filepath.Join(d.dir, "read-"+rand.Text()), nil
	if err := d.layers.Create(env.State, ref); err != nil {
		return fmt.Errorf("server %q: read its state: %w", spec.Server, err)
	}
	defer func() {
		if rm := errors.Join(d.layers.Remove(env.State), os.RemoveAll(env.State)); rm != nil {
			env.Log.Warn("what a state was read from is not removed; the next start does", "server", spec.Server, "err", rm)
		}
	}()
	if err := kind.Read(ctx, env, each); err != nil {
		return fmt.Errorf("server %q: read its state: %w", spec.Server, err)
	}
	return nil
}
