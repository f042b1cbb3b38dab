//go:build linux || darwin

package clone

import (
	"context"
	"fmt"
	"path"

	"golang.org/x/sys/unix"
)

// entry copies what has that name.
func (d *dir) entry(name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(d.src, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if d.vanished(err) {
			return nil
		}
		return d.fail("stat", name, err)
	}
	switch uint32(st.Mode) & unix.S_IFMT {
	case unix.S_IFREG:
		if st.Size < large {
			return d.once(name, &st, d.file)
		}
		d.later(func() error {
			if err := d.once(name, &st, d.file); err != nil {
				return err
			}
			return d.done()
		})
		return nil
	case unix.S_IFLNK:
		return d.once(name, &st, d.symlink)
	case unix.S_IFDIR:
		d.later(func() error { return d.enter(name, st) })
		return nil
	case unix.S_IFIFO:
		return d.once(name, &st, d.fifo)
	case unix.S_IFSOCK:
		return nil
	}
	return fmt.Errorf("%s is a device, which can't be copied; remove it or keep it elsewhere", d.join(name))
}

// later leaves a task to a free worker. It must end with done.
func (d *dir) later(task func() error) {
	d.busy.Add(1)
	d.c.pool.add(task)
}

// original is the first name of a file with several.
type original struct {
	path string        // below the root of the copy
	made chan struct{} // closed when it is there, or
	gone bool          // it will never be
}

// once makes a copy of a file, or a link to the copy that is there already. What
// makes a copy reports whether there was something to copy.
func (d *dir) once(name string, st *unix.Stat_t, produce func(string, *unix.Stat_t) (bool, error)) error {
	c := d.c
	if st.Nlink < 2 {
		_, err := produce(name, st)
		return err
	}
	for {
		c.mu.Lock()
		o, there := c.links[idOf(st)]
		if !there {
			o = &original{path: d.join(name), made: make(chan struct{})}
			c.links[idOf(st)] = o
		}
		c.mu.Unlock()
		if !there {
			made, err := produce(name, st)
			if o.gone = !made; o.gone {
				c.mu.Lock()
				delete(c.links, idOf(st))
				c.mu.Unlock()
			}
			close(o.made)
			return err
		}
		select {
		case <-o.made:
		case <-c.pool.ctx.Done():
			return context.Cause(c.pool.ctx)
		}
		if !o.gone {
			return d.link(name, o)
		}
	}
}

func (d *dir) link(name string, o *original) error {
	at, err := d.c.find(path.Dir(o.path))
	if err != nil {
		return d.fail("link", name, err)
	}
	defer unix.Close(at)
	if err := unix.Linkat(at, path.Base(o.path), d.dst, name, 0); err != nil {
		return d.fail("link", name, err)
	}
	return nil
}

func (d *dir) symlink(name string, st *unix.Stat_t) (bool, error) {
	target, err := readlinkat(d.src, name)
	if err != nil {
		if d.vanished(err) {
			return false, nil
		}
		return false, d.fail("read the link", name, err)
	}
	if err := unix.Symlinkat(target, d.dst, name); err != nil {
		return false, d.fail("make the copy of", name, err)
	}
	if err := d.dressName(name, st); err != nil {
		return false, err
	}
	d.c.p.file()
	return true, nil
}

// dressName gives owner and times to what is made by its name and never opened.
func (d *dir) dressName(name string, st *unix.Stat_t) error {
	if d.c.strange(st) {
		if err := unix.Fchownat(d.dst, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return d.fail("give away", name, err)
		}
	}
	if err := unix.UtimesNanoAt(d.dst, name, times(st), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return d.fail("set the times of", name, err)
	}
	return nil
}

// file copies a regular file.
func (d *dir) file(name string, st *unix.Stat_t) (bool, error) {
	c := d.c
	// Should it be a FIFO by now, opening it must not wait.
	src, err := openat(d.src, name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		if d.vanished(err) {
			return false, nil
		}
		return false, d.fail("open", name, err)
	}
	defer unix.Close(src)
	was := idOf(st)
	if err := unix.Fstat(src, st); err != nil {
		return false, d.fail("stat", name, err)
	}
	if uint32(st.Mode)&unix.S_IFMT != unix.S_IFREG || st.Nlink > 1 && idOf(st) != was {
		return false, d.fail("open", name, errChanged)
	}
	dst, err := c.how.create(src, d.dst, name, st)
	if err != nil {
		return false, d.fail("make the copy of", name, err)
	}
	err = c.complete(dst, src, st)
	if err == nil {
		// By name, which is the same: no other process knows the copy yet.
		err = unix.UtimesNanoAt(d.dst, name, times(st), unix.AT_SYMLINK_NOFOLLOW)
	}
	// Some filesystems report only now that the disk is full.
	if closeErr := unix.Close(dst); err == nil {
		err = closeErr
	}
	if err != nil {
		if cause := context.Cause(c.pool.ctx); cause != nil {
			return false, cause
		}
		return false, d.fail("copy", name, err)
	}
	c.p.file()
	return true, nil
}

// complete fills a new file and gives it all but its times.
func (c *copier) complete(dst, src int, st *unix.Stat_t) error {
	if err := c.fill(dst, src, st); err != nil {
		return err
	}
	if err := c.dress(src, dst, st); err != nil {
		return err
	}
	return unix.Fchmod(dst, uint32(st.Mode)&0o7777)
}

// strange reports whether a file must get an owner other than this user.
func (c *copier) strange(st *unix.Stat_t) bool {
	return c.owners && (int(st.Uid) != c.uid || int(st.Gid) != c.gid)
}

// dress gives a file its owner, which takes modes away and so comes before them,
// and extended attributes.
func (c *copier) dress(src, dst int, st *unix.Stat_t) error {
	if c.strange(st) {
		if err := unix.Fchown(dst, int(st.Uid), int(st.Gid)); err != nil {
			return fmt.Errorf("give it to its owner: %w", err)
		}
	}
	c.copyXattrs(dst, src)
	return nil
}

func times(st *unix.Stat_t) []unix.Timespec { return []unix.Timespec{st.Atim, st.Mtim} }
