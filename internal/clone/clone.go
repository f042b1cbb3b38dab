// Package clone copies directory trees: by reference where the filesystem can,
// else in parallel.
//
// # What a copy is
//
// Modes, times, links, holes and, as far as they can be had, extended attributes
// and owners (where we are root) are those of the source. Symbolic links are
// copied as they are and never followed; names that are hard links of each other
// within the tree are so in the copy. A FIFO is made anew, empty (macOS leaves it
// out). Sockets are left out: without the program that listens there, one only keeps
// the next program from listening. Devices are refused.
//
// # Who may move things meanwhile
//
// The source may belong to a program that is hostile or just busy. Every name is
// opened relative to the directory that was opened before it and without
// following links, so that a directory which is swapped for a link in the middle
// of the copy is an error and not a way out. On Linux and macOS a file that is
// replaced or, once, renamed within its directory meanwhile is in the copy.
//
// # All or nothing
//
// A tree is built beside its destination under a temporary name and renamed when
// it is whole. What fails removes it; what a killed program left of it is removed
// by Sweep. Nothing is forced to the disk.
package clone

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Options of Tree. The zero value is useful.
type Options struct {
	// Progress hears how many bytes are there of how many, one call at a time and
	// never less than before. It makes Tree measure the source first.
	Progress func(done, total int64)
	// Copied hears once, when the copy is whole, how much it is, counted as Size
	// counts.
	Copied func(bytes, files int64)
	// Workers is how many files are copied at once; default one a core and at most
	// eight.
	Workers int
	// Vanishing says that the source is in use: what is gone when its turn comes
	// is left out. Otherwise it is an error.
	Vanishing bool
}

const (
	tempPrefix = ".clone-"
	maxWorkers = 8
)

// Tree copies the directory src to dst, which must not exist; its parent must.
// Nothing is left of dst when it fails. A src that is itself a link is refused:
// resolve it first where that is meant.
func Tree(ctx context.Context, dst, src string, o Options) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, err := os.Lstat(dst); err == nil {
		return fmt.Errorf("copy %s: %w", src, &fs.PathError{Op: "make", Path: dst, Err: fs.ErrExist})
	}
	if o.Workers <= 0 {
		o.Workers = min(runtime.GOMAXPROCS(0), maxWorkers)
	}
	var total int64
	if o.Progress != nil {
		if total, _, err = Size(src); err != nil {
			return err
		}
	}
	temp := filepath.Join(filepath.Dir(dst), tempPrefix+rand.Text())
	if err := os.Mkdir(temp, 0o700); err != nil {
		return fmt.Errorf("copy %s: %w", src, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, Remove(temp))
		}
	}()
	p := &progress{report: o.Progress, total: total}
	if err := copyTree(ctx, temp, src, o, p); err != nil {
		return fmt.Errorf("copy %s: %w", src, err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := renameNew(temp, dst); err != nil {
		return fmt.Errorf("copy %s: %w", src, err)
	}
	p.finish()
	if o.Copied != nil {
		o.Copied(p.done, p.files)
	}
	return nil
}

// Sweep removes what a killed program left of trees that it was copying into
// parent. No Tree may run there meanwhile.
func Sweep(parent string) error {
	entries, err := os.ReadDir(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for half-made copies: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			errs = append(errs, Remove(filepath.Join(parent, e.Name())))
		}
	}
	return errors.Join(errs...)
}
