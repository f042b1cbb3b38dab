package sqlite

import (
	"fmt"
	"io"

	"github.com/tine-mcp/tine/internal/layer"
)

const (
	minPage = 512
	maxPage = 65536
)

// DB is the file of a database at one moment: which page stands where. It never
// changes, and shares what it can with the one it came from.
type DB struct {
	pageSize int
	pages    uint64
	at       tree
}

// Machine folds the changes of a database, one a transaction.
func Machine() *layer.Machine[*DB] {
	return &layer.Machine[*DB]{Empty: &DB{}, Apply: apply, Dump: dump, Live: live}
}

// Size is the length of the file.
func (d *DB) Size() int64 { return int64(d.pages) * int64(d.pageSize) }

// ReadAt implements [io.ReaderAt]. A page that was never written is zero.
func (d *DB) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read the database at %d: %w", off, io.ErrUnexpectedEOF)
	}
	size, n := d.Size(), 0
	for n < len(p) && off < size {
		in := off % int64(d.pageSize)
		part := p[n:]
		part = part[:min(int64(len(part)), int64(d.pageSize)-in)]
		if x := d.at.get(uint64(off / int64(d.pageSize))); x == (layer.Extent{}) {
			clear(part)
		} else if m, err := x.ReadAt(part, in); m < len(part) {
			return n + m, fmt.Errorf("read page %d of the database: %w", off/int64(d.pageSize)+1, err)
		}
		n += len(part)
		off += int64(len(part))
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func apply(d *DB, meta []byte, body layer.Extent) (*DB, error) {
	c, err := decodeChange(meta, body.Size())
	if err != nil {
		return nil, fmt.Errorf("change of a database: %w", err)
	}
	if d.pages > 0 && c.pageSize != d.pageSize && c.count() < c.pages {
		return nil, fmt.Errorf("change of a database: pages of %d bytes in a file with pages of %d", c.pageSize, d.pageSize)
	}
	e := &edit{}
	next := &DB{pageSize: c.pageSize, pages: c.pages, at: d.at}
	if c.pageSize != d.pageSize {
		next.at = tree{}
	}
	next.at = next.at.cut(e, c.pages)
	var off int64
	for _, r := range c.runs {
		for i := range r.count {
			next.at = next.at.set(e, r.first+i, body.Sub(off, int64(c.pageSize)))
			off += int64(c.pageSize)
		}
	}
	return next, nil
}

// dump writes what v has and base has not as one change.
func dump(base, v *DB, emit func(meta []byte, body io.Reader, size int64) error) error {
	if v == base || v.pageSize == 0 {
		return nil
	}
	c := change{pageSize: v.pageSize, pages: v.pages}
	var parts []layer.Extent
	v.differs(base, func(i uint64, x layer.Extent) {
		c.add(i)
		parts = append(parts, x)
	})
	return emit(c.encode(), &extents{left: parts, size: v.pageSize}, int64(len(parts))*int64(v.pageSize))
}

func live(base, v *DB) int64 {
	var n int64
	v.differs(base, func(uint64, layer.Extent) { n++ })
	return n * int64(v.pageSize)
}

// differs calls yield for every page of d that base has otherwise. The zero
// Extent is a page of zeros.
func (d *DB) differs(base *DB, yield func(i uint64, x layer.Extent)) {
	old := base.at
	if base.pageSize != d.pageSize {
		old = tree{}
	}
	d.at.diff(old, func(i uint64, x layer.Extent) {
		if i < d.pages {
			yield(i, x)
		}
	})
}

// extents reads one page after the other.
type extents struct {
	left []layer.Extent
	size int
	cur  *io.SectionReader
}

func (r *extents) Read(p []byte) (int, error) {
	for {
		if r.cur == nil {
			if len(r.left) == 0 {
				return 0, io.EOF
			}
			if r.cur = r.left[0].Reader(); r.left[0] == (layer.Extent{}) {
				r.cur = io.NewSectionReader(zeros{}, 0, int64(r.size))
			}
			r.left = r.left[1:]
		}
		n, err := r.cur.Read(p)
		if err == io.EOF {
			r.cur, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) {
	clear(p)
	return len(p), nil
}
