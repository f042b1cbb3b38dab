package sqlite

import (
	"fmt"
	"io"
	"os"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

// inMemory is how much of a scratch lies in memory; the rest is in a nameless
// file.
const inMemory = 1 << 20

// room is how much temporary space one connection may still use.
type room struct{ left int64 }

func (r *room) take(n int64) error {
	if n > r.left {
		return vfs.SystemError(errNoRoom, sqlite3.IOERR_WRITE)
	}
	r.left -= n
	return nil
}

// scratch is a temporary file: a journal, a sort that does not fit in memory, the pages
// of an open transaction. Nothing of it outlasts the connection. It is not for use by
// more than one goroutine.
type scratch struct {
	room *room
	size int64
	mem  []byte   // what lies below inMemory
	file *os.File // what lies above, at its own offset; nil until it is needed
}

// ReadAt implements [io.ReaderAt].
func (s *scratch) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) && off < s.size {
		part := p[n:]
		part = part[:min(int64(len(part)), s.size-off)]
		if off < inMemory {
			part = part[:min(int64(len(part)), inMemory-off)]
			copied := 0
			if off < int64(len(s.mem)) {
				copied = copy(part, s.mem[off:])
			}
			clear(part[copied:])
		} else if m, err := s.file.ReadAt(part, off); err == io.EOF {
			clear(part[m:])
		} else if err != nil {
			return n + m, fmt.Errorf("read temporary file: %w", err)
		}
		n += len(part)
		off += int64(len(part))
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements [io.WriterAt].
func (s *scratch) WriteAt(p []byte, off int64) (int, error) {
	end := off + int64(len(p))
	if end > s.size {
		if err := s.room.take(end - s.size); err != nil {
			return 0, err
		}
		s.size = end
	}
	n := 0
	if off < inMemory {
		upto := min(end, inMemory)
		if s.mem == nil {
			s.mem = make([]byte, 0, 16<<10)
		}
		if int64(len(s.mem)) < upto {
			s.mem = append(s.mem, make([]byte, upto-int64(len(s.mem)))...)
		}
		n = copy(s.mem[off:upto], p)
	}
	if n == len(p) {
		return n, nil
	}
	if s.file == nil {
		f, err := os.CreateTemp("", "tine-sqlite-")
		if err != nil {
			return n, fmt.Errorf("make temporary file: %w", err)
		}
		s.file = f
		os.Remove(f.Name()) // some systems only let it go after it is closed
	}
	m, err := s.file.WriteAt(p[n:], off+int64(n))
	if err != nil {
		err = fmt.Errorf("write temporary file: %w", err)
	}
	return n + m, err
}

// Truncate implements [vfs.File].
func (s *scratch) Truncate(size int64) error {
	if size >= s.size {
		return nil
	}
	s.room.left += s.size - size
	s.size = size
	if size < int64(len(s.mem)) {
		s.mem = s.mem[:size]
	}
	if s.file != nil {
		// What lies behind the end must be zero when the file grows again.
		return s.file.Truncate(max(size, inMemory))
	}
	return nil
}

// reset empties it, for the next use.
func (s *scratch) reset() {
	if s.file != nil || cap(s.mem) > 256<<10 {
		s.Close()
		return
	}
	s.room.left += s.size
	s.size, s.mem = 0, s.mem[:0]
}

// Close implements [io.Closer].
func (s *scratch) Close() error {
	s.room.left += s.size
	s.size, s.mem = 0, nil
	if s.file == nil {
		return nil
	}
	f := s.file
	s.file = nil
	err := f.Close()
	os.Remove(f.Name())
	return err
}

// scratchFile is a scratch as SQLite sees it.
type scratchFile struct{ scratch }

var _ vfs.File = (*scratchFile)(nil)

func (f *scratchFile) Size() (int64, error)           { return f.size, nil }
func (*scratchFile) Sync(vfs.SyncFlag) error          { return nil }
func (*scratchFile) Lock(vfs.LockLevel) error         { return nil }
func (*scratchFile) Unlock(vfs.LockLevel) error       { return nil }
func (*scratchFile) CheckReservedLock() (bool, error) { return false, nil }
func (*scratchFile) SectorSize() int                  { return sectorSize }
func (*scratchFile) DeviceCharacteristics() vfs.DeviceCharacteristic {
	return characteristics
}
