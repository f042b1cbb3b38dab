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

	"github.com/tine-mcp/tine/api"
)

// Running calls are noted in a file, in the page cache: what was written there outlives a
// process that is killed. The next Open finds the notes of the calls that were cut off,
// and appends them as calls with an unknown outcome.
//
// The file is notes of one size. A note is a state, one byte; a checksum of the rest; when the
// call began; and six texts, or seven with a run, cut so that they fit: each a length of two
// bytes and the bytes.
const (
	// UnderwayName is the name of the file in the folder of the journal.
	UnderwayName = "underway"
	noteSize     = 512
	// maxNotes is how many calls are noted at once. Further ones are not noted.
	maxNotes = 8192

	noteHead = 16 // state, three bytes of nothing, checksum, time

	// States of a note; zero is none.
	notePlain = 1
	noteOfRun = 2
)

// noted are the first n texts of an entry, which a note with a state has, and how long
// each may be.
func noted(e *Entry, state byte) (texts [7]*string, n, most int) {
	texts = [...]*string{&e.Principal, &e.Session, &e.Server, &e.Method, &e.Name, &e.Mode, &e.Run}
	n = len(texts)
	if state == notePlain {
		n--
	}
	return texts, n, (noteSize-noteHead)/n - 2
}

// A Note is the place of a running call; zero for none.
type Note int32

// underway notes calls. Without a file it notes none.
type underway struct {
	f       *os.File
	failing atomic.Bool // notes can't be written, as was logged
	buffers sync.Pool   // of *[noteSize]byte

	mu     sync.Mutex
	free   []Note
	given  Note // the highest that was given out
	closed bool
}

// Begin notes that a call is running, until End.
func (j *Journal) Begin(e *Entry) Note {
	u := &j.underway
	n := u.take()
	if n == 0 {
		return 0
	}
	note, _ := u.buffers.Get().(*[noteSize]byte)
	if note == nil {
		note = new([noteSize]byte)
	}
	defer u.buffers.Put(note)
	note[0] = notePlain
	if e.Run != "" {
		note[0] = noteOfRun
	}
	binary.LittleEndian.PutUint64(note[8:], uint64(e.At.UnixNano()))
	at := noteHead
	texts, many, most := noted(e, note[0])
	for _, t := range texts[:many] {
		text := (*t)[:min(len(*t), most)]
		binary.LittleEndian.PutUint16(note[at:], uint16(len(text)))
		at += 2 + copy(note[at+2:], text)
	}
	binary.LittleEndian.PutUint32(note[4:], crc32.ChecksumIEEE(note[8:at]))
	_, err := u.f.WriteAt(note[:at], int64(n-1)*noteSize)
	if u.failing.Swap(err != nil) != (err != nil) && err != nil {
		j.log.Warn("a running call can't be noted; a kill of the gateway would leave no trace of it", "err", err)
	}
	return n
}

var over = []byte{0}

// End removes the note of a call: it was appended, or is not to be.
func (j *Journal) End(n Note) {
	if n == 0 {
		return
	}
	u := &j.underway
	_, _ = u.f.WriteAt(over, int64(n-1)*noteSize) // within what Begin has written
	u.mu.Lock()
	defer u.mu.Unlock()
	u.free = append(u.free, n)
	u.release()
}

// close notes no call from now on.
func (u *underway) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	u.release()
}

// release closes the file once no note is out. The caller holds mu.
func (u *underway) release() {
	if u.closed && u.f != nil && len(u.free) == int(u.given) {
		u.f.Close()
		u.f = nil
	}
}

func (u *underway) take() Note {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.f == nil || u.closed {
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
		if e, ok := readNote(note); ok {
			left = append(left, e)
		}
	}
	slices.SortFunc(left, func(a, b Entry) int { return a.At.Compare(b.At) })
	return left, nil
}

// readNote reads the note of a running call; false for anything else.
func readNote(note []byte) (e Entry, ok bool) {
	if len(note) < noteHead || note[0] != notePlain && note[0] != noteOfRun {
		return e, false
	}
	e.At = time.Unix(0, int64(binary.LittleEndian.Uint64(note[8:]))).UTC()
	at := noteHead
	texts, many, most := noted(&e, note[0])
	for _, text := range texts[:many] {
		if at+2 > len(note) {
			return e, false
		}
		n := int(binary.LittleEndian.Uint16(note[at:]))
		if at += 2; n > most || at+n > len(note) {
			return e, false
		}
		*text = string(note[at : at+n])
		at += n
	}
	return e, binary.LittleEndian.Uint32(note[4:]) == crc32.ChecksumIEEE(note[8:at])
}

// cutOff is the error of calls that were running when a gateway was killed.
const cutOff = "the gateway was killed while this call was running; it is not known whether it took effect"

// openUnderway appends the calls that an earlier process left, and begins anew.
// Without the file calls are not noted, but still made.
func (j *Journal) openUnderway() {
	path := filepath.Join(j.dir, UnderwayName)
	err := j.appendLeft(path)
	if err == nil {
		j.underway.f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	}
	if err != nil {
		j.log.Warn("running calls can't be noted; a kill of the gateway would leave no trace of them", "err", err)
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
		j.log.Warn("calls were running when the last gateway was killed; it is not known whether they took effect", "calls", len(left), "first", left[0].ID)
	}
	return nil
}

// unwritten are those of some calls that have no line: a process may be killed between
// the line and the end of the note. Such a line is among the last ones.
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
