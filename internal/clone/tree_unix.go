//go:build linux || darwin

package clone

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// copier is one running copy.
type copier struct {
	o       Options
	p       *progress
	pool    *pool
	root    id   // of the copy, which must not copy itself
	rootFD  int  // of the copy
	owners  bool // we may give files away
	uid     int  // owner of new files
	gid     int
	buffers sync.Pool
	how     how
	noXattr atomic.Bool // the filesystem has none

	mu    sync.Mutex
	open  map[*dir]bool
	links map[id]*original // of files with several names
	late  []lateMode
}

// id tells one file from another.
type id struct{ dev, ino uint64 }

func idOf(st *unix.Stat_t) id { return id{uint64(st.Dev), uint64(st.Ino)} }

// lateMode is a mode of a directory that would lock us out.
type lateMode struct {
	path string
	mode uint32
}

// dir is a directory that is being copied. It is open in source and copy until
// each of its entries is made, or opened where that is a directory itself: from
// then on nothing changes its times any more, and deep trees don't need as many
// descriptors as they are deep.
type dir struct {
	c    *copier
	path string // below the root
	st   unix.Stat_t
	src  int
	dst  int
	busy atomic.Int64 // tasks that need it
}

// large is the size from which on a file is worth a task of its own.
const large = 1 << 20

const bufferSize = 256 << 10

func copyTree(ctx context.Context, dst, src string, o Options, p *progress) error {
	c := &copier{
		o: o, p: p, owners: os.Geteuid() == 0, uid: os.Geteuid(),
		open: make(map[*dir]bool), links: make(map[id]*original),
	}
	c.buffers.New = func() any {
		b := make([]byte, bufferSize)
		return &b
	}
	from, err := openat(unix.AT_FDCWD, src, openDir)
	if err != nil {
		return rootError(src, err)
	}
	d := &dir{c: c, path: ".", src: from, dst: -1}
	c.open[d] = true
	defer c.close()
	if d.dst, err = openat(unix.AT_FDCWD, dst, openDir); err != nil {
		return &fs.PathError{Op: "open", Path: dst, Err: err}
	}
	if c.rootFD, err = openat(d.dst, ".", openDir); err != nil {
		return &fs.PathError{Op: "open", Path: dst, Err: err}
	}
	defer unix.Close(c.rootFD)
	var made unix.Stat_t
	if err := errors.Join(unix.Fstat(d.src, &d.st), unix.Fstat(d.dst, &made)); err != nil {
		return &fs.PathError{Op: "stat", Path: src, Err: err}
	}
	// Below a directory that passes its group on, ours is not the process's.
	c.root, c.gid = idOf(&made), int(made.Gid)

	c.pool = newPool(ctx)
	d.busy.Store(1)
	c.pool.add(d.list)
	if err := c.pool.run(o.Workers); err != nil {
		return err
	}
	return c.setLate()
}

func rootError(src string, err error) error {
	if st, statErr := os.Lstat(src); statErr == nil && st.Mode()&fs.ModeSymlink != 0 {
		return errors.New("it is a symbolic link; name the directory that it leads to")
	}
	if errors.Is(err, errChanged) { // there was no first look
		err = unix.ENOTDIR
	}
	return &fs.PathError{Op: "open", Path: src, Err: err}
}

// close closes what tasks that never ran had open.
func (c *copier) close() {
	for d := range c.open {
		unix.Close(d.src)
		if d.dst >= 0 {
			unix.Close(d.dst)
		}
	}
}

// list copies what is in the directory. Small files are made one after another: a
// directory takes one new name at a time, and workers that wait for it only take each
// other's time. Large files and directories are left to free workers.
func (d *dir) list() error {
	err := d.names(func(name string) error {
		if d.c.pool.ctx.Err() != nil {
			return context.Cause(d.c.pool.ctx)
		}
		return d.entry(name)
	})
	switch {
	case err == nil, err == unix.ENOENT && d.c.o.Vanishing: // the directory itself is gone
		return d.done()
	case errors.As(err, new(unix.Errno)) && !errors.As(err, new(*fs.PathError)):
		return d.fail("read the directory", "", err)
	}
	return err
}

// maxLists is how often a directory is listed in which a program goes on making new names.
const maxLists = 10

// names calls a function once with each name in the directory. It lists until a listing has
// nothing new: a file that a program renames meanwhile may be in one listing under neither
// name, and one that it replaces may be there twice or, on tmpfs and btrfs, not at all.
func (d *dir) names(each func(string) error) error {
	seen := make(map[string]bool)
	for range maxLists {
		before := len(seen)
		err := readNames(d.src, func(names []string) error {
			for _, name := range names {
				if seen[name] {
					continue
				}
				seen[name] = true
				if err := each(name); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || len(seen) == before {
			return err
		}
	}
	return nil
}

// enter makes a directory in the copy and goes on with what is in it.
func (d *dir) enter(name string, st unix.Stat_t) error {
	c := d.c
	if idOf(&st) == c.root {
		return fmt.Errorf("%s is the copy itself; a tree can't be copied into itself", d.join(name))
	}
	src, err := openat(d.src, name, openDir)
	if err != nil {
		if d.vanished(err) {
			return d.done()
		}
		return d.fail("open", name, err)
	}
	sub := &dir{c: c, path: d.join(name), src: src, dst: -1}
	c.mu.Lock()
	c.open[sub] = true
	c.mu.Unlock()
	if err := unix.Fstat(src, &sub.st); err != nil {
		return d.fail("stat", name, err)
	}
	if err := unix.Mkdirat(d.dst, name, 0o700); err != nil {
		return d.fail("make the copy of", name, err)
	}
	if sub.dst, err = openat(d.dst, name, openDir); err != nil {
		return d.fail("open the copy of", name, err)
	}
	sub.busy.Store(1)
	if err := d.done(); err != nil {
		return err
	}
	return sub.list()
}

// done is called at the end of each task of the directory. The last one gives it
// what entries would have changed.
func (d *dir) done() error {
	if d.busy.Add(-1) > 0 {
		return nil
	}
	c := d.c
	if err := c.dress(d.src, d.dst, &d.st); err != nil {
		return d.fail("set the attributes of", "", err)
	}
	if err := unix.UtimesNanoAt(d.dst, ".", times(&d.st), 0); err != nil {
		return d.fail("set the times of", "", err)
	}
	mode := uint32(d.st.Mode) & 0o7777
	if mode&0o100 == 0 { // hard links still have to find their way through
		c.mu.Lock()
		c.late = append(c.late, lateMode{d.path, mode})
		c.mu.Unlock()
	} else if err := unix.Fchmod(d.dst, mode); err != nil {
		return d.fail("set the mode of", "", err)
	}
	c.mu.Lock()
	delete(c.open, d)
	c.mu.Unlock()
	unix.Close(d.src)
	unix.Close(d.dst)
	return nil
}

// setLate locks what had to stay open, what lies deeper first.
func (c *copier) setLate() error {
	slices.SortFunc(c.late, func(a, b lateMode) int { return len(b.path) - len(a.path) })
	for _, l := range c.late {
		fd, err := c.find(l.path)
		if err == nil {
			err = unix.Fchmod(fd, l.mode)
			unix.Close(fd)
		}
		if err != nil {
			return &fs.PathError{Op: "set the mode of", Path: l.path, Err: err}
		}
	}
	return nil
}

// find opens a directory of the copy. It goes step by step, for there may be
// more of them than a path can have.
func (c *copier) find(p string) (int, error) {
	fd, err := openat(c.rootFD, ".", openDir)
	if err != nil || p == "." {
		return fd, err
	}
	for name := range strings.SplitSeq(p, "/") {
		next, err := openat(fd, name, openDir)
		unix.Close(fd)
		if err != nil {
			return -1, err
		}
		fd = next
	}
	return fd, nil
}

func (d *dir) join(name string) string { return path.Join(d.path, name) }

// vanished reports whether an error only says that something is gone that may be.
func (d *dir) vanished(err error) bool {
	return d.c.o.Vanishing && errors.Is(err, fs.ErrNotExist)
}

func (d *dir) fail(what, name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("it was removed meanwhile: %w", err)
	}
	return &fs.PathError{Op: what, Path: d.join(name), Err: err}
}
