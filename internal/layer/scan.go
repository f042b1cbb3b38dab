package layer

import (
	"fmt"
	"hash/crc32"
	"io"
)

// Damage says which layer can't be read, and where it is damaged.
type Damage struct {
	Layer  string
	Offset int64
	Reason string
}

func (d *Damage) Error() string {
	return fmt.Sprintf("layer %s is damaged at offset %d: %s", d.Layer, d.Offset, d.Reason)
}

// tornError is damage that the death of the process explains when it stands at
// the end of a layer that is not sealed.
type tornError struct{ Damage }

const window = 32 << 10

// scanner walks over the records of a layer's file. It reads headers and metas;
// bodies only where they are to be checked.
type scanner struct {
	r      io.ReaderAt
	size   int64
	id     string
	salt   uint64
	bodies checks

	buf   []byte // a window of the file, read ahead
	bufAt int64
	meta  []byte
}

type checks int

const (
	noBodies  checks = iota
	lastBody         // of an unsealed layer: it may be torn
	allBodies        // of what leaves or comes from outside
)

// scan calls each for every record. It returns where the whole records end and
// how many they are; the error is a *tornError where the rest may be a tail that
// was never finished, a *Damage where it can't be that, or each's own.
func (s *scanner) scan(each func(meta []byte, body, size int64) error) (end int64, count uint32, err error) {
	end = headerSize
	for {
		begin := align(end)
		if begin >= s.size {
			return end, count, nil
		}
		next, meta, h, err := s.record(begin, count)
		if err != nil {
			return end, count, err
		}
		if each != nil {
			if err := each(meta, next-h.bodyLen, h.bodyLen); err != nil {
				return end, count, fmt.Errorf("layer %s at offset %d: %w", s.id, begin, err)
			}
		}
		end = next
		count++
	}
}

func (s *scanner) record(begin int64, number uint32) (end int64, meta []byte, h recordHeader, err error) {
	fail := func(torn bool, reason string) error {
		d := Damage{s.id, begin, reason}
		if torn {
			return &tornError{d}
		}
		return &d
	}
	if s.size-begin < recordSize {
		return 0, nil, h, fail(true, "half a record's header")
	}
	b, err := s.read(begin, recordSize)
	if err != nil {
		return 0, nil, h, err
	}
	h, ok := decodeRecord(b, s.salt)
	if !ok {
		later, err := s.anyRecord(begin + recordSize)
		if err != nil {
			return 0, nil, h, err
		}
		return 0, nil, h, fail(!later, "a record's header is wrong")
	}
	metaAt := begin + recordSize
	bodyAt := metaAt + int64(h.metaLen)
	end = bodyAt + h.bodyLen
	switch {
	case h.kind == kindOpen:
		return 0, nil, h, fail(true, "a record was never finished")
	case h.number != number:
		return 0, nil, h, fail(false, fmt.Sprintf("record %d stands where %d belongs", h.number, number))
	case end > s.size:
		return 0, nil, h, fail(true, "a record is cut off")
	}
	last := align(end) >= s.size
	if meta, err = s.read(metaAt, int(h.metaLen)); err != nil {
		return 0, nil, h, err
	}
	if crc(meta) != h.metaCRC {
		return 0, nil, h, fail(last, "the checksum of a change is wrong")
	}
	if s.bodies == allBodies || s.bodies == lastBody && last {
		sum := crc32.New(castagnoli)
		if _, err := io.Copy(sum, io.NewSectionReader(s.r, bodyAt, h.bodyLen)); err != nil {
			return 0, nil, h, fmt.Errorf("read layer %s at %d: %w", s.id, bodyAt, err)
		}
		if sum.Sum32() != h.bodyCRC {
			return 0, nil, h, fail(last, "the checksum of a change's body is wrong")
		}
	}
	return end, meta, h, nil
}

// read gives n bytes from off on, valid until the next call.
func (s *scanner) read(off int64, n int) ([]byte, error) {
	if n > window {
		if cap(s.meta) < n {
			s.meta = make([]byte, n)
		}
		s.meta = s.meta[:n]
		return s.meta, s.fill(s.meta, off)
	}
	if off < s.bufAt || off+int64(n) > s.bufAt+int64(len(s.buf)) {
		if s.buf == nil {
			s.buf = make([]byte, min(window, s.size))
		}
		s.buf = s.buf[:min(int64(cap(s.buf)), s.size-off)]
		if err := s.fill(s.buf, off); err != nil {
			s.buf = s.buf[:0]
			return nil, err
		}
		s.bufAt = off
	}
	return s.buf[off-s.bufAt:][:n], nil
}

func (s *scanner) fill(b []byte, off int64) error {
	if n, err := s.r.ReadAt(b, off); n < len(b) {
		return fmt.Errorf("read layer %s at %d: %w", s.id, off, err)
	}
	return nil
}

// anyRecord tells whether the header of a record stands at off or later. Then
// what is before it is damage, not a tail.
func (s *scanner) anyRecord(off int64) (bool, error) {
	for ; off+recordSize <= s.size; off += recordSize {
		b, err := s.read(off, recordSize)
		if err != nil {
			return false, err
		}
		if _, ok := decodeRecord(b, s.salt); ok {
			return true, nil
		}
	}
	return false, nil
}
