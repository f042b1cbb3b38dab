package layer

import (
	"fmt"
	"hash/crc32"
	"io"
)

// tornError is a record that was being written when the process died. It was never
// acknowledged. It can only stand at the end of a layer that is not sealed.
type tornError struct{ Damage }

const window = 32 << 10

// scanner walks over the records of a layer's file. It reads headers and metas;
// bodies only where they are to be checked.
type scanner struct {
	l      *layer
	r      io.ReaderAt
	size   int64
	bodies bool // check them: they leave, or come from outside

	buf   []byte // a window of the file, read ahead
	bufAt int64
	meta  []byte
}

// record is one that was read.
type record struct {
	recordHeader
	body, end int64 // where its body begins, and where the record ends
	meta      []byte
}

// scan calls each for every record. It returns the size of a file that has the
// whole records only, and how many they are; the error is a *tornError where a
// record was never finished, a *Cut where the end is missing, a *Damage where
// neither explains what is there, or each's own.
func (s *scanner) scan(each func(meta []byte, body, size int64) error) (end int64, count uint32, err error) {
	for last := int64(headerSize); ; count++ {
		begin := align(last)
		end = begin + recordSize
		if s.l.version == oldVersion {
			if end = last; begin >= s.size {
				return end, count, nil
			}
		}
		r, err := s.record(begin, count)
		if err != nil {
			return end, count, err
		}
		if r.kind == kindEnd {
			return end, count, nil
		}
		if r.body < s.l.loaded {
			s.l.sums.add(s.l.version, r.body, r.recordHeader)
		}
		if each != nil {
			if err := each(r.meta, r.body, r.bodyLen); err != nil {
				return end, count, fmt.Errorf("layer file %s at offset %d: %w", s.l.path(), begin, err)
			}
		}
		last = r.end
	}
}

// record reads the one at begin, or the end marker.
func (s *scanner) record(begin int64, number uint32) (r record, err error) {
	damage := func(reason string) error { return s.l.damage(begin, reason) }
	cut := func(reason string) error {
		return &Cut{Damage: *s.l.damage(begin, reason), Left: int(number)}
	}
	old := s.l.version == oldVersion
	if s.size-begin < recordSize {
		return r, cut("the file ends there")
	}
	b, err := s.read(begin, recordSize)
	if err != nil {
		return r, err
	}
	h, ok := decodeRecord(b, s.l.salt)
	if !ok || old && h.kind == kindEnd {
		return r, s.either(begin+recordSize, "a record's header is wrong", damage, cut)
	}
	r = record{recordHeader: h, body: begin + recordSize + int64(h.metaLen)}
	r.end = r.body + h.bodyLen + tableSize(s.l.version, h.bodyLen)
	size := r.end // of the file if this is its last record
	if !old {
		size = align(size) + recordSize
	}
	switch {
	case h.number != number:
		return r, damage(fmt.Sprintf("record %d stands where %d belongs", h.number, number))
	case h.kind == kindEnd && begin+recordSize < s.size:
		return r, cut("an old end marker stands there, and more after it")
	case h.kind == kindEnd:
		return r, nil
	case h.kind == kindOpen && size < s.size:
		return r, damage("a record in the middle was never finished")
	case h.kind == kindOpen:
		return r, &tornError{*s.l.damage(begin, "a record was never finished")}
	case r.end > s.size:
		return r, cut("a record is cut off")
	}
	if r.meta, err = s.read(begin+recordSize, int(h.metaLen)); err != nil {
		return r, err
	}
	if crc(r.meta) != h.metaCRC {
		return r, s.either(r.end, "the checksum of a change is wrong", damage, cut)
	}
	if s.bodies {
		return r, s.body(r)
	}
	return r, nil
}

// either tells damage from a missing end: where the header of a record stands at
// off or later, what is before it is damage.
func (s *scanner) either(off int64, reason string, damage, cut func(string) error) error {
	later, err := s.anyRecord(align(off))
	if err != nil {
		return err
	}
	if later {
		return damage(reason)
	}
	return cut(reason)
}

// body checks all of a record's body.
func (s *scanner) body(r record) error {
	var table []byte
	buf := make([]byte, min(blockSize, r.bodyLen))
	sum := uint32(0)
	blocked := tableSize(s.l.version, r.bodyLen) > 0
	for done := int64(0); done < r.bodyLen; {
		b := buf[:min(blockSize, r.bodyLen-done)]
		if err := s.fill(b, r.body+done); err != nil {
			return err
		}
		sum = crc32.Update(sum, castagnoli, b)
		if blocked {
			table, sum = order.AppendUint32(table, sum), 0
		}
		done += int64(len(b))
	}
	if blocked {
		sum = crc(table)
		stored := make([]byte, len(table))
		if err := s.fill(stored, r.body+r.bodyLen); err != nil {
			return err
		}
		if crc(stored) != r.bodyCRC {
			return s.l.damage(r.body+r.bodyLen, "the checksum of a table of checksums is wrong")
		}
	}
	if sum != r.bodyCRC {
		return s.l.damage(r.body, "the checksum of a change's body is wrong")
	}
	return nil
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
		return s.l.unread(off, err)
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
		if _, ok := decodeRecord(b, s.l.salt); ok {
			return true, nil
		}
	}
	return false, nil
}
