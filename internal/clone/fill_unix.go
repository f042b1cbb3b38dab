//go:build linux || darwin

package clone

import (
	"context"
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// step is how much is copied between two looks at the context.
const step = 8 << 20

// weight is what a file counts: its size, or what there is of it when most are
// holes.
func weight(st *unix.Stat_t) int64 {
	if sparse(st) {
		return st.Blocks * 512
	}
	return st.Size
}

// sparse reports whether looking for holes is worth it. Small files may have no
// blocks at all, being kept elsewhere.
func sparse(st *unix.Stat_t) bool { return st.Size > 64<<10 && st.Blocks*512 < st.Size }

// fill copies a file's content, up to the size that it had: a file that a program
// goes on writing to would have no end.
func (c *copier) fill(dst, src int, st *unix.Stat_t) error {
	left := weight(st)
	advance := func(n int64) {
		n = min(n, left)
		left -= n
		c.p.bytes(n)
	}
	done, err := c.how.share(dst, src, st)
	if err != nil {
		return err
	}
	if !done {
		if sparse(st) {
			err = c.fillSparse(dst, src, st.Size, advance)
		} else {
			_, err = c.fillRange(dst, src, 0, st.Size, advance)
		}
		if err != nil {
			return err
		}
	}
	advance(left)
	return nil
}

// fillSparse copies the parts that are there.
func (c *copier) fillSparse(dst, src int, size int64, advance func(int64)) error {
	if err := unix.Ftruncate(dst, size); err != nil {
		return err
	}
	for off := int64(0); off < size; {
		data, err := unix.Seek(src, off, seekData)
		switch {
		case errors.Is(err, unix.ENXIO): // holes to the end
			return nil
		case err != nil: // holes can't be found here
			_, err := c.fillRange(dst, src, off, size, advance)
			return err
		}
		hole, err := unix.Seek(src, data, seekHole)
		if err != nil {
			hole = size
		}
		if data >= size {
			return nil
		}
		if off, err = c.fillRange(dst, src, data, min(hole, size), advance); err != nil {
			return err
		}
		if off < min(hole, size) { // it was cut short meanwhile
			return unix.Ftruncate(dst, off)
		}
	}
	return nil
}

// fillRange copies from one offset to another and returns how far it came, which
// is less where the file ends before.
func (c *copier) fillRange(dst, src int, from, to int64, advance func(int64)) (int64, error) {
	for from < to {
		if c.pool.ctx.Err() != nil {
			return from, context.Cause(c.pool.ctx)
		}
		n, err := c.how.move(dst, src, from, int(min(to-from, step)))
		if errors.Is(err, errors.ErrUnsupported) {
			n, err = c.pump(dst, src, from, to)
		}
		if errors.Is(err, io.EOF) {
			return from, nil
		}
		if err != nil {
			return from, err
		}
		from += n
		advance(n)
	}
	return from, nil
}

// pump copies a piece through memory.
func (c *copier) pump(dst, src int, from, to int64) (int64, error) {
	buf := c.buffers.Get().(*[]byte)
	defer c.buffers.Put(buf)
	b := (*buf)[:min(to-from, bufferSize)]
	n, err := again(func() (int, error) { return unix.Pread(src, b, from) })
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	for off := 0; off < n; {
		m, err := again(func() (int, error) { return unix.Pwrite(dst, b[off:n], from+int64(off)) })
		if err != nil {
			return 0, err
		}
		off += m
	}
	return int64(n), nil
}

func again(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
