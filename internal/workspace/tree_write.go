package workspace

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

func (f *treeFS) Write(name string, r io.Reader, size int64) error {
	return pathError("write", name, f.put(r, size, func(t *tree) (change, *node, error) {
		s, err := f.find(t, name, true)
		if err != nil {
			return change{}, nil, err
		}
		c := change{path: pathOf(s), mode: fileMode}
		if !s.found {
			return c, nil, nil
		}
		old, err := nodeAt(s)
		if err == nil {
			err = readable(old.mode)
		}
		if err != nil {
			return change{}, nil, err
		}
		c.mode, c.created = old.mode, old.created
		return c, old, nil
	}))
}

func (f *treeFS) Create(name string, r io.Reader, size int64) error {
	return pathError("create", name, f.put(r, size, func(t *tree) (change, *node, error) {
		s, err := f.free(t, name)
		return change{path: pathOf(s), mode: fileMode}, nil, err
	}))
}

// free resolves a name at which nothing may be.
func (f *treeFS) free(t *tree, name string) (spot[*node], error) {
	s, err := f.find(t, name, false)
	if err == nil && s.found {
		err = fs.ErrExist
	}
	return s, err
}

// put writes a file to where place says, which also tells what it replaces. A
// change of place without a time happens now.
func (f *treeFS) put(r io.Reader, size int64, place func(t *tree) (change, *node, error)) error {
	if size < 0 {
		return fs.ErrInvalid
	}
	var replaced int64 // bytes that make room
	decide := func(t *tree) (change, error) {
		c, old, err := place(t)
		if err != nil {
			return change{}, err
		}
		files := int64(1)
		replaced = 0
		if old != nil {
			files, replaced = 0, old.bytes
		}
		if err := f.limits.fits(t, files, size-replaced); err != nil {
			return change{}, err
		}
		c.op = opWrite
		return now(c), nil
	}
	// What can't be done is refused before anything is read.
	if _, err := decide(f.head.Value()); err != nil {
		return err
	}
	id, last, err := f.upload(r, size, replaced)
	if err == nil {
		err = f.commit(last, func(t *tree) (change, error) {
			mine := *t
			if id != 0 {
				mine.drop(id) // its parts are not counted twice
			}
			c, err := decide(&mine)
			c.upload = id
			return c, err
		})
	}
	if err != nil && id != 0 {
		if drop := f.commit(nil, func(*tree) (change, error) { return change{op: opDrop, upload: id}, nil }); drop != nil {
			err = fmt.Errorf("%w (and what was written of it stays until the workspace is opened again: %w)", err, drop)
		}
	}
	return err
}

// upload writes all of a file but its last part, which it returns. A file of one
// part has no upload and the id 0.
func (f *treeFS) upload(r io.Reader, size, replaced int64) (id uint64, last []byte, err error) {
	buf := make([]byte, min(size, chunkSize))
	for left := size; ; {
		part := buf[:min(left, chunkSize)]
		if n, err := io.ReadFull(r, part); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = fmt.Errorf("content ended after %d of %d bytes: %w", size-left+int64(n), size, io.ErrUnexpectedEOF)
			}
			return id, nil, err
		}
		if left -= int64(len(part)); left == 0 {
			return id, part, nil
		}
		if id == 0 {
			id = newUpload()
		}
		err := f.commit(part, func(t *tree) (change, error) {
			return change{op: opPart, upload: id}, f.limits.fits(t, 0, int64(len(part))-replaced)
		})
		if err != nil {
			return id, nil, err
		}
	}
}

func newUpload() uint64 {
	var b [8]byte
	for {
		rand.Read(b[:])
		if id := binary.LittleEndian.Uint64(b[:]); id != 0 {
			return id
		}
	}
}

// now gives a change the time at which it happens.
func now(c change) change {
	if c.modified == 0 {
		c.modified = time.Now().UnixNano()
	}
	if c.created == 0 {
		c.created = c.modified
	}
	return c
}
