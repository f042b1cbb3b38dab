//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/driver/folder"
)

// imageFiles are what gVisor calls the files of a memory. They are never changed,
// so that copies are links.
var imageFiles = []string{"checkpoint.img", "pages.img", "pages_meta.img"}

// memory is an instance that is held, whose memory can be taken down.
type memory interface {
	// checkpoint writes it into a folder that is there and empty.
	checkpoint(ctx context.Context, dir string) (imageInfo, error)
	// Greeted is as that of a driver.Suspender.
	Greeted() (hello json.RawMessage, forked bool)
}

var _ memory = (*instance)(nil)

// check looks that the files of a memory are those that were written, as far as
// that can be seen at a glance: a disk that was full or cut off from its power
// leaves shorter ones.
func (i imageInfo) check(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("its memory is gone")
	}
	if err != nil {
		return err
	}
	var size int64
	for _, e := range entries {
		f, err := e.Info()
		if err != nil {
			return err
		}
		if !f.Mode().IsRegular() || !slices.Contains(imageFiles, e.Name()) {
			return fmt.Errorf("its memory is damaged: there is %q among its files", e.Name())
		}
		size += f.Size()
	}
	if size != i.Size || len(entries) == 0 {
		return fmt.Errorf("its memory is damaged: it has %d bytes, and had %d", size, i.Size)
	}
	return nil
}

// linkImage makes a folder with the same files as another one.
func linkImage(ctx context.Context, to, from string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := linkFiles(to, from)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Another filesystem, or one without links, or too many of them.
	if err := clone.Remove(to); err != nil {
		return err
	}
	return clone.Tree(ctx, to, from, clone.Options{})
}

func linkFiles(to, from string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Link(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// takeImage moves the files, or makes them again where they can't be moved. It
// returns what undoes it.
func takeImage(ctx context.Context, to, from string) (giveBack func(), err error) {
	if err := os.Rename(from, to); err != nil {
		return func() {}, linkImage(ctx, to, from)
	}
	return func() { os.Rename(to, from) }, nil
}

// syncImage makes the files of a memory last.
func syncImage(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return folder.Sync(dir)
}

// took removes the memory that an instance began with from its state: it goes on by
// itself now, and no instance may begin from there again. Twice is fine.
func (d *Driver) took(state string) error {
	if state == "" {
		return nil
	}
	r, err := readState(state)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errRecord):
	case err != nil:
		return err
	case r.Image != nil || len(r.Hello) > 0 || r.Forked:
		r.Image, r.Hello, r.Forked = nil, nil, false
		if err := r.write(state, false); err != nil {
			return err
		}
	}
	if err := clone.Remove(imageOf(state)); err != nil {
		return fmt.Errorf("remove a memory that is used up: %w", err)
	}
	return nil
}

// loses reports whether what a sandbox that has ended had in memory is gone. One that was
// suspended, or was not used yet, has it in its state.
func (r record) loses() bool {
	if !r.Memory {
		return false
	}
	st, err := readState(r.State)
	return err != nil || st.Image == nil
}

// suspended writes the memory of an instance that is held into its state. Where it
// fails the state has none, as before.
func (d *Driver) suspended(ctx context.Context, inst memory, state string, hello []byte) (err error) {
	if !greeting(hello) {
		return errors.New("what the server said in its handshake is not known")
	}
	part := imageOf(state) + folder.Part
	if err := clone.Remove(part); err != nil {
		return err
	}
	if err := os.Mkdir(part, 0o700); err != nil {
		return fmt.Errorf("make room for its memory: %w", err)
	}
	moved := false
	defer func() {
		if err != nil {
			err = errors.Join(err, clone.Remove(part))
		}
		if err != nil && moved {
			err = errors.Join(err, d.took(state))
		}
	}()
	info, err := inst.checkpoint(ctx, part)
	if err != nil {
		return err
	}
	if err := info.check(part); err != nil {
		return err
	}
	if info.Sum, err = sumImage(part); err != nil {
		return fmt.Errorf("sum up its memory: %w", err)
	}
	d.kept.verified(info.ID, true)
	if err := syncImage(part); err != nil {
		return fmt.Errorf("write its memory to the disk: %w", err)
	}
	if err := d.took(state); err != nil { // the one before is not used up
		return err
	}
	if err := os.Rename(part, imageOf(state)); err != nil {
		return err
	}
	moved = true
	d.kept.note(&info)
	return stateRecord{Image: &info, Hello: hello}.write(state, true)
}

// greeting reports whether something is what a server said in its handshake.
func greeting(hello []byte) bool { return len(hello) > 0 && string(hello) != "null" }
