package layer

import (
	"fmt"
	"io"
)

// An Extent is where the body of a change stands. It is small, comparable, and
// valid as long as the state or the Ref is held that it was read from, also when
// the state has written its layers anew. The zero Extent is empty.
type Extent struct {
	in     *layer
	offset int64
	size   int64
}

// Size is the number of bytes.
func (e Extent) Size() int64 { return e.size }

// Sub is the part of n bytes from off on, cut to what there is.
func (e Extent) Sub(off, n int64) Extent {
	off = min(max(off, 0), e.size)
	return Extent{e.in, e.offset + off, min(max(n, 0), e.size-off)}
}

// ReadAt implements io.ReaderAt. Any number of goroutines may read at once. What
// does not have the checksum that it was written with is not given: the error is a
// *Damage.
func (e Extent) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read at %d: negative offset", off)
	}
	if off >= e.size {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	var short error
	if int64(len(p)) > e.size-off {
		p, short = p[:e.size-off], io.EOF
	}
	if err := e.in.read(p, e.offset+off); err != nil {
		return 0, err
	}
	return len(p), short
}

// Reader reads it from the beginning.
func (e Extent) Reader() *io.SectionReader { return io.NewSectionReader(e, 0, e.size) }
