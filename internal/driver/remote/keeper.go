package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/folder"
)

// A state whose server forks is an instance of the orchestrator's. Its folder
// holds one file, with the key of the instance in the ledger; none is in it
// before the first start. A snapshot is the orchestrator's own where it makes
// them. Where it only forks, it is one more instance that is not used, and of which the
// children are forks.

const stateFile = "instance.json"

// stateData is what the file says.
type stateData struct {
	Key string `json:"key"`
}

// carries reports whether a fork takes along what the server remembers.
func carries(a access) bool { return a.Remote.Fork != "" || a.Remote.Snapshot != "" }

// kept reports whether an instance is a state, and outlives its session's use of it.
func kept(a access, state string) bool { return state != "" && carries(a) }

// readState returns the key of the instance that a state is; empty for none.
func readState(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var s stateData
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return "", fmt.Errorf("read which instance a state is: %w", err)
	}
	return s.Key, nil
}

// writeState says which instance a state is; none with an empty key.
func writeState(dir, key string) error {
	path := filepath.Join(dir, stateFile)
	if key == "" {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forget which instance a state was: %w", err)
		}
		return nil
	}
	b, err := json.Marshal(stateData{key})
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = folder.WriteSynced(path, b)
	}
	if err != nil {
		return fmt.Errorf("write down which instance a state is: %w", err)
	}
	return nil
}

// settle makes an instance the state in a folder, or removes it.
func (d *Driver) settle(dir string, e *entry) error {
	err := writeState(dir, e.Key)
	if err != nil {
		d.dispose(e)
	}
	return err
}

// frozen is what a snapshot of this driver says of itself. The rest is in the
// ledger, under the key.
type frozen struct {
	Key string `json:"key,omitempty"` // empty where there was nothing to freeze
}

// thaw finds what a snapshot is; nil where there is nothing.
func (d *Driver) thaw(s driver.Snapshot) (e *entry, empty bool, err error) {
	if s.Driver != Name {
		return nil, false, fmt.Errorf("server %q: the snapshot is of the driver %q: %w", s.Server, s.Driver, driver.ErrUnfit)
	}
	var f frozen
	if err := json.Unmarshal(s.Data, &f); err != nil {
		return nil, false, fmt.Errorf("server %q: read its snapshot: %w", s.Server, err)
	}
	e, err = d.ledger.get(f.Key)
	if err != nil {
		return nil, false, fmt.Errorf("server %q: %w", s.Server, err)
	}
	return e, f.Key == "", nil
}

// Carries implements driver.Keeper.
func (d *Driver) Carries(spec driver.Spec) (what, why string) {
	if a, err := accessOf(spec); err == nil && carries(a) {
		return driver.CarryMemory, ""
	}
	return driver.CarryNone, fmt.Sprintf("the orchestrator of server %[1]q is not known to fork; name its endpoint in servers.%[1]s.remote.fork or servers.%[1]s.remote.snapshot", spec.Server)
}

// Seed implements driver.Keeper. A state without a snapshot is made when its
// first instance starts.
func (d *Driver) Seed(ctx context.Context, spec driver.Spec, src driver.Source) (err error) {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("server %q: seed: %w", spec.Server, err)
	}
	a, err := accessOf(spec)
	if err != nil {
		return err
	}
	if src.From != nil && !carries(a) {
		return fmt.Errorf("server %q: its orchestrator can neither fork nor begin from a snapshot; set servers.%s.remote.fork or snapshot where it can", spec.Server, spec.Server)
	}
	if err := os.MkdirAll(spec.State, 0o700); err != nil {
		return fmt.Errorf("server %q: make its state: %w", spec.Server, err)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(spec.State)
		}
	}()
	if src.From == nil {
		return nil
	}
	from, empty, err := d.thaw(*src.From)
	if err != nil || empty {
		return err
	}
	if from == nil || from.ID == "" {
		return fmt.Errorf("server %q: its snapshot is not known any more: %w", spec.Server, driver.ErrLost)
	}
	e, err := d.child(ctx, a, spec, from, src.Take)
	if err != nil {
		return err
	}
	return d.settle(spec.State, e)
}

// child makes an instance of what is frozen.
func (d *Driver) child(ctx context.Context, a access, spec driver.Spec, from *entry, take bool) (*entry, error) {
	where := a.instead(from.Access)
	if from.Kind == kindInstance && take {
		mine := *from
		mine.State, mine.Session, mine.Access = spec.State, spec.Session, where
		return &mine, d.ledger.put(&mine)
	}
	var e *entry
	var err error
	if from.Kind == kindInstance {
		e = follow(where, kindInstance, where.Remote.Fork, from.ID, []byte(`{"count":1}`))
	} else {
		details, jsonErr := json.Marshal(map[string]string{"snapshot_id": from.ID})
		if jsonErr != nil {
			return nil, jsonErr
		}
		e, err = newEntry(where, spec, newKey(), details)
	}
	if err != nil {
		return nil, err
	}
	e.State, e.Session, e.Of = spec.State, spec.Session, from.ID
	e, err = d.obtain(ctx, e)
	if forgotten(err) {
		err = fmt.Errorf("%w: %w", err, driver.ErrLost)
	}
	return e, err
}

// follow is the intent to have something made of an instance.
func follow(a access, kind, path, of string, body []byte) *entry {
	return &entry{Key: newKey(), Kind: kind, At: time.Now().UTC(), Access: a, Path: path, Of: of, Body: body}
}

// Freeze implements driver.Keeper. The folder dir is not needed.
func (d *Driver) Freeze(ctx context.Context, spec driver.Spec, _ driver.Instance, _ string) (driver.Snapshot, error) {
	fail := func(err error) (driver.Snapshot, error) {
		return driver.Snapshot{}, fmt.Errorf("server %q: freeze: %w", spec.Server, err)
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	a, err := accessOf(spec)
	if err != nil {
		return driver.Snapshot{}, err
	}
	if !carries(a) {
		return fail(fmt.Errorf("its orchestrator can neither fork nor make snapshots; set servers.%s.remote.fork or snapshot where it can: %w", spec.Server, errors.ErrUnsupported))
	}
	key, err := readState(spec.State)
	if err != nil {
		return fail(err)
	}
	var f frozen
	if key != "" {
		of, err := d.ledger.get(key)
		switch {
		case err != nil:
			return fail(err)
		case of == nil || of.ID == "":
			return fail(fmt.Errorf("the instance that its state was is not known any more: %w", driver.ErrLost))
		}
		where := a.instead(of.Access)
		e := follow(where, kindSnapshot, where.Remote.Snapshot, of.ID, []byte(`{}`))
		if where.Remote.Snapshot == "" {
			e = follow(where, kindInstance, where.Remote.Fork, of.ID, []byte(`{"count":1}`))
		}
		if e, err = d.obtain(ctx, e); err != nil {
			if forgotten(err) {
				err = fmt.Errorf("%w: %w", err, driver.ErrLost)
			}
			return driver.Snapshot{}, err
		}
		f.Key = e.Key
	}
	data, err := json.Marshal(f)
	if err != nil {
		return fail(err)
	}
	return driver.Snapshot{Driver: Name, Server: spec.Server, Carries: driver.CarryMemory, Data: data}, nil
}

// Discard implements driver.Keeper.
func (d *Driver) Discard(ctx context.Context, s driver.Snapshot) error {
	e, _, err := d.thaw(s)
	if err != nil || e == nil || e.State != "" { // one that was taken is a state
		return err
	}
	return d.discard(ctx, e)
}

// Erase implements driver.Keeper.
func (d *Driver) Erase(ctx context.Context, spec driver.Spec) error {
	if spec.State == "" {
		return nil
	}
	key, err := readState(spec.State)
	if err != nil {
		return fmt.Errorf("server %q: erase its state: %w", spec.Server, err)
	}
	var left error
	if e, err := d.ledger.get(key); err != nil {
		return fmt.Errorf("server %q: erase its state: %w", spec.Server, err)
	} else if e != nil {
		if a, err := accessOf(spec); err == nil {
			e.Access = a.instead(e.Access)
		}
		ctx, cancel := context.WithTimeoutCause(ctx, removeWait, &slow{removeWait})
		defer cancel()
		left = d.discard(ctx, e)
	}
	if err := os.RemoveAll(spec.State); err != nil {
		return fmt.Errorf("server %q: erase its state: %w", spec.Server, err)
	}
	return left
}

// CheckExport implements driver.Keeper: what is frozen is with the orchestrator, which
// does not hand it out.
func (d *Driver) CheckExport(_ context.Context, s driver.Snapshot) error {
	return fmt.Errorf("server %q: its snapshot is with its orchestrator and can't be exported; leave the server out of the export, or export it there: %w", s.Server, errors.ErrUnsupported)
}

// Export implements driver.Keeper.
func (d *Driver) Export(ctx context.Context, s driver.Snapshot, _ io.Writer) error {
	return d.CheckExport(ctx, s)
}

// Import implements driver.Keeper: nothing of this driver is ever exported.
func (d *Driver) Import(_ context.Context, server, _ string, _ io.Reader) (driver.Snapshot, error) {
	return driver.Snapshot{}, fmt.Errorf("server %q: what an orchestrator runs can't be imported: %w", server, errors.ErrUnsupported)
}
