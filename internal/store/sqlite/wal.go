package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// SQLite reads its write-ahead log up to the first frame whose checksum is wrong,
// takes that for the end, and overwrites the rest: a damaged byte undoes every
// transaction after it, and the remaining database looks sound. checkLog finds such
// damage before SQLite opens the file.
//
// The format is at https://sqlite.org/fileformat2.html#walformat.

const (
	walHeader   = 32
	frameHeader = 24
	walMagic    = 0x377f0682 // the last bit says in which byte order sums are made
)

// checkLog returns why the log of the database at path can't be trusted. A log that
// a killed process left unfinished can be: the missing part was not committed.
func checkLog(path string) error {
	f, err := os.Open(path + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	if db, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && db.Size() == 0 {
		return errors.New("there is a log of it, but the database itself is missing or empty")
	}
	head := make([]byte, walHeader)
	if _, err := io.ReadFull(f, head); err != nil {
		return errors.New("its log is cut off within its first bytes")
	}
	magic := binary.BigEndian.Uint32(head)
	size := int(binary.BigEndian.Uint32(head[8:]))
	if magic&^1 != walMagic || size < 512 || size > 64<<10 || size&(size-1) != 0 {
		return errors.New("its log does not begin like one")
	}
	sum := walSum{order: binary.LittleEndian}
	if magic&1 != 0 {
		sum.order = binary.BigEndian
	}
	sum.add(head[:24])
	if !sum.is(head[24:]) {
		return errors.New("the first bytes of its log are damaged")
	}
	salts := string(head[16:24])
	bad := 0 // the first frame whose sum is wrong, counted from one
	frame := make([]byte, frameHeader+size)
	for n := 1; ; n++ {
		if _, err := io.ReadFull(f, frame); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		} else if err != nil {
			return err
		}
		// Frames of an earlier round have other salts: this round ends before them.
		ours := string(frame[8:16]) == salts
		if bad == 0 {
			sum.add(frame[:8])
			sum.add(frame[frameHeader:])
			if !ours || !sum.is(frame[16:frameHeader]) {
				bad = n
			}
			continue
		}
		// A transaction that was rolled back, or whose writer was killed, leaves
		// frames behind the end too, but none that commits it.
		if commits := binary.BigEndian.Uint32(frame[4:]) != 0; ours && commits {
			return fmt.Errorf("its log is damaged at frame %d, and frame %d, which is newer, commits a transaction", bad, n)
		}
	}
}

// walSum is the running checksum of a log.
type walSum struct {
	order  binary.ByteOrder
	s0, s1 uint32
}

func (w *walSum) add(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		w.s0 += w.order.Uint32(b) + w.s1
		w.s1 += w.order.Uint32(b[4:]) + w.s0
	}
}

func (w *walSum) is(b []byte) bool {
	return w.s0 == binary.BigEndian.Uint32(b) && w.s1 == binary.BigEndian.Uint32(b[4:])
}
