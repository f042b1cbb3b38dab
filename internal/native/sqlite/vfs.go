package sqlite

import (
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

const (
	sectorSize = 512
	// Order and the bytes around a write are no concern in memory, so that SQLite
	// need not sync its journal nor save more than the pages that change.
	characteristics = vfs.IOCAP_POWERSAFE_OVERWRITE | vfs.IOCAP_SAFE_APPEND | vfs.IOCAP_SEQUENTIAL
)

// source is what a main file reads: a *DB, or a file that is about to be one.
type source interface {
	io.ReaderAt
	Size() int64
}

// mainFile is the database file of one connection: a source, and over it the pages
// that the open transaction has written.
//
// How a transaction becomes one change: SQLite writes pages when its cache is
// full and at the commit, and then asks for a sync of the file. It asks for one
// also when it has rolled back. So the owner of the connection says with
// committing that what comes is a commit; then the sync hands all pages to commit
// at once. Before that nothing is durable and after it everything is, and what
// was not committed is dropped when SQLite lets go of its lock. Rollback journals
// are needed only while the connection lives, so they are scratch.
type mainFile struct {
	latest func() (src source, pageSize int)
	commit func(c *change, body io.Reader) error // nil when the database can't be written
	room   *room

	src      source
	pageSize int
	lock     vfs.LockLevel

	dirty   bool
	size    uint64            // in pages, with what was written
	visible uint64            // from this page on nothing shows through of src
	at      map[uint64]uint64 // page to its place in over, in pages
	over    scratch

	committing bool
	err        error // why the last commit failed
}

var (
	_ vfs.FileSync      = (*mainFile)(nil)
	_ vfs.FileLockState = (*mainFile)(nil)
)

func newMainFile(room *room, latest func() (source, int), commit func(*change, io.Reader) error) *mainFile {
	f := &mainFile{room: room, latest: latest, commit: commit, over: scratch{room: room}}
	f.src, f.pageSize = latest()
	return f
}

func (f *mainFile) ReadAt(p []byte, off int64) (int, error) {
	if !f.dirty {
		return f.src.ReadAt(p, off)
	}
	n := 0
	for n < len(p) {
		page, in := uint64(off)/uint64(f.pageSize), off%int64(f.pageSize)
		if page >= f.size {
			return n, io.EOF
		}
		part := p[n:]
		part = part[:min(int64(len(part)), int64(f.pageSize)-in)]
		var err error
		if place, ok := f.at[page]; ok {
			_, err = f.over.ReadAt(part, int64(place)*int64(f.pageSize)+in)
		} else if page < f.visible {
			_, err = f.src.ReadAt(part, off)
		} else {
			clear(part)
		}
		if err != nil {
			return n, err
		}
		n += len(part)
		off += int64(len(part))
	}
	return n, nil
}

// change begins a transaction's changes with a page of this size.
func (f *mainFile) change(pageSize int) error {
	if f.commit == nil {
		return sqlite3.READONLY
	}
	if !f.dirty {
		if f.pageSize == 0 {
			f.pageSize = pageSize
		}
		f.dirty = true
		f.size = uint64(f.src.Size()) / uint64(f.pageSize)
		f.visible = f.size
		if f.at == nil {
			f.at = map[uint64]uint64{}
		}
	}
	return nil
}

func (f *mainFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.change(len(p)); err != nil {
		return 0, err
	}
	if len(p) != f.pageSize || off%int64(f.pageSize) != 0 {
		return 0, vfs.SystemError(errors.New("a write that is not one page"), sqlite3.IOERR_WRITE)
	}
	page := uint64(off) / uint64(f.pageSize)
	place, ok := f.at[page]
	if !ok {
		place = uint64(f.over.size) / uint64(f.pageSize)
	}
	if n, err := f.over.WriteAt(p, int64(place)*int64(f.pageSize)); err != nil {
		return n, err
	}
	f.at[page] = place
	f.size = max(f.size, page+1)
	return len(p), nil
}

func (f *mainFile) Truncate(size int64) error {
	if f.pageSize == 0 {
		return nil
	}
	if err := f.change(f.pageSize); err != nil {
		return err
	}
	f.size = uint64(size) / uint64(f.pageSize)
	f.visible = min(f.visible, f.size)
	maps.DeleteFunc(f.at, func(page, _ uint64) bool { return page >= f.size })
	return nil
}

func (f *mainFile) Size() (int64, error) {
	if f.dirty {
		return int64(f.size) * int64(f.pageSize), nil
	}
	return f.src.Size(), nil
}

// SyncSuper is where a transaction is committed.
func (f *mainFile) SyncSuper(string) error {
	if !f.committing || !f.dirty {
		return nil
	}
	f.committing = false
	if f.err = f.write(); f.err != nil {
		return vfs.SystemError(f.err, sqlite3.IOERR_FSYNC)
	}
	f.drop()
	return nil
}

func (f *mainFile) write() error {
	c := &change{pageSize: f.pageSize, pages: f.size}
	// The file is cut after the commit, which is too late here; its header says
	// already how long it will be.
	var head [100]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return err
	}
	if n := uint64(binary.BigEndian.Uint32(head[28:])); n > 0 && n < c.pages && [4]byte(head[24:]) == [4]byte(head[92:]) {
		c.pages = n
	}
	// What was cut off and is part of the file again is zero.
	if old := uint64(f.src.Size()) / uint64(f.pageSize); f.visible < old {
		zero := make([]byte, f.pageSize)
		for i := f.visible; i < min(old, c.pages); i++ {
			if _, ok := f.at[i]; !ok {
				if _, err := f.WriteAt(zero, int64(i)*int64(f.pageSize)); err != nil {
					return err
				}
			}
		}
	}
	body := &overlay{f: f, left: slices.Sorted(maps.Keys(f.at))}
	for len(body.left) > 0 && body.left[len(body.left)-1] >= c.pages {
		body.left = body.left[:len(body.left)-1]
	}
	for _, i := range body.left {
		c.add(i)
	}
	return f.commit(c, body)
}

// drop forgets what was written and goes on from the latest source.
func (f *mainFile) drop() {
	if f.dirty {
		f.dirty = false
		f.over.reset()
		if len(f.at) > 4096 {
			f.at = nil // a map never shrinks
		}
		clear(f.at)
	}
	f.src, f.pageSize = f.latest()
}

func (f *mainFile) Lock(level vfs.LockLevel) error {
	if f.lock == vfs.LOCK_NONE {
		f.drop()
	}
	f.lock = max(f.lock, level)
	return nil
}

func (f *mainFile) Unlock(level vfs.LockLevel) error {
	f.lock = min(f.lock, level)
	if f.lock <= vfs.LOCK_SHARED && f.dirty {
		f.drop()
	}
	return nil
}

func (f *mainFile) LockState() vfs.LockLevel       { return f.lock }
func (*mainFile) CheckReservedLock() (bool, error) { return false, nil }
func (*mainFile) Sync(vfs.SyncFlag) error          { return nil }
func (*mainFile) SectorSize() int                  { return sectorSize }
func (*mainFile) DeviceCharacteristics() vfs.DeviceCharacteristic {
	return characteristics
}

func (f *mainFile) Close() error {
	f.dirty = false
	return f.over.Close()
}

// overlay reads the pages that a transaction has written, one after the other.
type overlay struct {
	f    *mainFile
	left []uint64
	in   int
}

func (o *overlay) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) && len(o.left) > 0 {
		part := p[n:]
		part = part[:min(len(part), o.f.pageSize-o.in)]
		if _, err := o.f.over.ReadAt(part, int64(o.f.at[o.left[0]])*int64(o.f.pageSize)+int64(o.in)); err != nil {
			return n, err
		}
		n += len(part)
		if o.in += len(part); o.in == o.f.pageSize {
			o.in, o.left = 0, o.left[1:]
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// filesystem is everything that one connection can open: its database, and
// scratch. No name leads to a file of the host.
type filesystem struct {
	main *mainFile
	room *room
}

var _ vfs.VFS = (*filesystem)(nil)

func (s *filesystem) Open(_ string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	const temporary = vfs.OPEN_TEMP_DB | vfs.OPEN_TRANSIENT_DB | vfs.OPEN_MAIN_JOURNAL | vfs.OPEN_TEMP_JOURNAL | vfs.OPEN_SUBJOURNAL
	switch {
	case flags&vfs.OPEN_MAIN_DB != 0 && s.main != nil:
		f := s.main
		s.main = nil // there is one
		return f, flags, nil
	case flags&temporary != 0:
		return &scratchFile{scratch{room: s.room}}, flags, nil
	}
	return nil, flags, sqlite3.CANTOPEN
}

func (*filesystem) Delete(string, bool) error                   { return nil }
func (*filesystem) Access(string, vfs.AccessFlag) (bool, error) { return false, nil }
func (*filesystem) FullPathname(name string) (string, error)    { return name, nil }
