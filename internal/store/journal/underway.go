package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tine-mcp/tine/api"
)

// Calls that are under way are noted in a file that is mapped into memory. To write there
// takes no system call, and what was written outlives a process that is killed. The next
// Open finds the notes of the calls that were cut off, and appends them as calls of which
// it is not known how they ended.
//
// The file is notes of one size. A note is a state, 4 bytes; a checksum of the rest; when
// the call began; and six texts, cut so that they fit: each a length of two bytes and the
// bytes. The state is written last when a call begins, and first when it ends.
const (
	// UnderwayName is what the file is called in the folder of the journal.
	UnderwayName = "underway"
	noteSize     = 512
	// maxNotes is how many calls are noted at once. Others are not noted.
	maxNotes = 8192

	noteHead = 16 // state, checksum, time
	noteText = (noteSize-noteHead)/6 - 2
)

// A Note is the place of a call that is under way; zero for none.
type Note int32

// underway notes calls. Without a map it notes none.
type underway struct {
	mem []byte // of the file; unmapped when it is closed and no note is out

	mu     sync.Mutex
	free   []Note
	given  Note // the highest that was given out
	closed bool
}

// Begin notes that a call is under way, until End.
func (j *Journal) Begin(e *Entry) Note {
	u := &j.underway
	n := u.take()
	if n == 0 {
		return 0
	}
	note := u.note(n)
	binary.LittleEndian.PutUint64(note[8:], uint64(e.At.UnixNano()))
	at := noteHead
	for _, text := range []string{e.Principal, e.Session, e.Server, e.Method, e.Name, e.Mode} {
		text = text[:min(len(text), noteText)]
		binary.LittleEndian.PutUint16(note[at:], uint16(len(text)))
		at += 2 + copy(note[at+2:], text)
	}
	clear(note[at:])
	binary.LittleEndian.PutUint32(note[4:], crc32.ChecksumIEEE(note[8:]))
	atomic.StoreUint32(state(note), 1)
	return n
}

// End takes the note of a call back: it was appended, or is not to be.
func (j *Journal) End(n Note) {
	if n == 0 {
		return
	}
	u := &j.underway
	atomic.StoreUint32(state(u.note(n)), 0)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.free = append(u.free, n)
	u.unmap()
}

// close notes no call from now on.
func (u *underway) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	u.unmap()
}

// unmap lets go of the file once it is closed and no note is out. The caller holds mu.
func (u *underway) unmap() {
	if u.closed && u.mem != nil && len(u.free) == int(u.given) {
		_ = unmapNotes(u.mem)
		u.mem = nil
	}
}

func (u *underway) take() Note {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mem == nil || u.closed {
		return 0
	}
	if last := len(u.free) - 1; last >= 0 {
		n := u.free[last]
		u.free = u.free[:last]
		return n
	}
	if int(u.given) == maxNotes {
		return 0
	}
	u.given++
	return u.given
}

func (u *underway) note(n Note) []byte { return u.mem[int(n-1)*noteSize : int(n)*noteSize] }

// state is the first word of a note, which is aligned as the map is.
func state(note []byte) *uint32 { return (*uint32)(unsafe.Pointer(&note[0])) }

// readUnderway reads the notes that an earlier process left.
func readUnderway(path string) ([]Entry, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var left []Entry
	for note := range slices.Chunk(data, noteSize) {
		if len(note) < noteSize || binary.NativeEndian.Uint32(note) != 1 || binary.LittleEndian.Uint32(note[4:]) != crc32.ChecksumIEEE(note[8:]) {
			continue
		}
		e := Entry{At: time.Unix(0, int64(binary.LittleEndian.Uint64(note[8:]))).UTC()}
		at := noteHead
		for _, text := range []*string{&e.Principal, &e.Session, &e.Server, &e.Method, &e.Name, &e.Mode} {
			n := min(int(binary.LittleEndian.Uint16(note[at:])), noteText)
			*text = string(note[at+2 : at+2+n])
			at += 2 + n
		}
		left = append(left, e)
	}
	slices.SortFunc(left, func(a, b Entry) int { return a.At.Compare(b.At) })
	return left, nil
}

// cutOff is what is said of calls that were under way when a gateway was killed.
const cutOff = "the gateway was killed while this call was under way; it is not known whether it took effect"

// openUnderway appends what an earlier process left, and begins anew. Without the file
// calls are not noted, which is no reason not to make them.
func (j *Journal) openUnderway() {
	path := filepath.Join(j.dir, UnderwayName)
	err := j.appendLeft(path)
	if err == nil {
		j.underway.mem, err = mapNotes(path, maxNotes*noteSize)
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		j.log.Warn("calls that are under way are not noted, and a kill of the gateway would leave no trace of them", "err", err)
	}
}

func (j *Journal) appendLeft(path string) error {
	left, err := readUnderway(path)
	if err != nil || len(left) == 0 {
		return err
	}
	if left, err = j.unwritten(left); err != nil {
		return err
	}
	for i := range left {
		left[i].Outcome, left[i].Error = string(api.KindInfrastructure), cutOff
		if err := j.Append(&left[i]); err != nil {
			return err
		}
	}
	if len(left) > 0 {
		j.log.Warn("calls were under way when the gateway before this one was killed; it is not known whether they took effect", "calls", len(left), "first", left[0].ID)
	}
	return nil
}

// unwritten is those of some calls that have no line: a process may be killed between the
// line and the end of the note. Such a line is among the last ones.
func (j *Journal) unwritten(left []Entry) ([]Entry, error) {
	type beginning struct {
		at      int64
		session string
	}
	written := make(map[beginning]bool)
	j.mu.Lock()
	segments := slices.Clone(j.segments[max(0, len(j.segments)-2):])
	j.mu.Unlock()
	var s scanner
	for _, seg := range segments {
		f, err := os.Open(j.path(seg.n))
		if err != nil {
			return nil, err
		}
		for s.at(f, 0, seg.size); ; {
			l, err := s.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				f.Close()
				return nil, fmt.Errorf("read %s: %w", f.Name(), err)
			}
			if l.kind == call {
				e := l.head.entry()
				written[beginning{e.At.UnixNano(), e.Session}] = true
			}
		}
		f.Close()
	}
	return slices.DeleteFunc(left, func(e Entry) bool { return written[beginning{e.At.UnixNano(), e.Session}] }), nil
}
