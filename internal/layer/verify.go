package layer

import (
	"cmp"
	"hash/crc32"
	"io"
	"slices"
	"sync"
)

// checkEnds sees whether a sealed layer, and all that it stands on, end with an end
// marker. That costs one small read for each file of an earlier run, once, and finds
// a file that was cut before a state begins on it.
func (l *layer) checkEnds() error {
	var seen []*layer
	for ; l != nil && !l.ended.Load(); l = l.parent {
		seen = append(seen, l)
		if l.loaded == 0 || l.loaded < l.end || l.version == oldVersion {
			continue // it was written by this run, or has no marker
		}
		b := make([]byte, recordSize)
		if err := l.readFile(b, l.end-recordSize); err != nil {
			return err
		}
		if h, ok := decodeRecord(b, l.salt); !ok || h.kind != kindEnd {
			return l.found(l.damage(l.end, "the file is too short: the end is missing"))
		}
	}
	for _, l := range seen {
		l.ended.Store(true)
	}
	return nil
}

// sums knows the checksums of the bodies that an earlier run wrote into a layer,
// and which of their blocks were verified. It is filled as the layer is replayed,
// and a body is read only after that.
//
// A block is verified when it is first read, by any reader, and not again
// before the store is opened again. So verifying costs once what is read, and
// nothing for what is not. What this run wrote itself is not verified.
type sums struct {
	mu     sync.RWMutex
	bodies []bodySum // by offset
	blocks int       // of all of them
	known  []uint64  // a bit for each block that was verified
}

type bodySum struct {
	offset, size int64
	crc          uint32
	blocked      bool   // it has a table
	first        int    // number of its first block in known
	table        []byte // read when it is first needed
}

// add gets the bodies of a layer in order, any number of times.
func (s *sums) add(version uint32, offset int64, h recordHeader) {
	if h.bodyLen == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.bodies); n > 0 && s.bodies[n-1].offset >= offset {
		return
	}
	blocks := int(max(tableSize(version, h.bodyLen)/4, 1))
	s.bodies = append(s.bodies, bodySum{
		offset: offset, size: h.bodyLen, crc: h.bodyCRC, blocked: blocks > 1, first: s.blocks,
	})
	s.blocks += blocks
	for len(s.known)*64 < s.blocks {
		s.known = append(s.known, 0)
	}
}

// find gives the body in which off lies.
func (s *sums) find(off int64) (b bodySum, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i, exact := s.search(off)
	if !exact {
		i--
	}
	if i < 0 || off >= s.bodies[i].offset+s.bodies[i].size {
		return b, false
	}
	return s.bodies[i], true
}

func (s *sums) search(off int64) (i int, exact bool) {
	return slices.BinarySearchFunc(s.bodies, off, func(b bodySum, off int64) int { return cmp.Compare(b.offset, off) })
}

// verified tells whether the blocks from first to last of a body were.
func (s *sums) verified(b bodySum, first, last int64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i := b.first + int(first); i <= b.first+int(last); i++ {
		if s.known[i/64]&(1<<(i%64)) == 0 {
			return false
		}
	}
	return true
}

func (s *sums) setVerified(b bodySum, block int64) {
	i := b.first + int(block)
	s.mu.Lock()
	s.known[i/64] |= 1 << (i % 64)
	s.mu.Unlock()
}

func (s *sums) setTable(b bodySum, table []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.search(b.offset); ok {
		s.bodies[i].table = table
	}
}

// read reads a part of a body, all of p, and verifies what was not yet.
func (l *layer) read(p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	if off >= l.loaded {
		return l.readFile(p, off)
	}
	b, ok := l.sums.find(off)
	if !ok || off+int64(len(p)) > b.offset+b.size {
		return l.found(l.damage(off, "no change has its body there"))
	}
	first, last := b.blockAt(off), b.blockAt(off+int64(len(p))-1)
	if l.sums.verified(b, first, last) {
		return l.readFile(p, off)
	}
	for i := first; i <= last; i++ {
		begin, size := b.block(i)
		from := max(off, begin)
		part := p[from-off : min(off+int64(len(p)), begin+size)-off]
		if err := l.readBlock(b, i, part, from); err != nil {
			return err
		}
	}
	return nil
}

// readBlock reads p, which lies in one block, and verifies the block before.
func (l *layer) readBlock(b bodySum, i int64, p []byte, off int64) error {
	begin, size := b.block(i)
	if l.sums.verified(b, i, i) {
		return l.readFile(p, off)
	}
	want, err := l.blockSum(b, i)
	if err != nil {
		return err
	}
	if size > chunk { // of version 1, which has one checksum whatever the size
		sum := crc32.New(castagnoli)
		if _, err := io.Copy(sum, io.NewSectionReader(at{l}, begin, size)); err != nil {
			return err
		}
		if sum.Sum32() != want {
			return l.found(l.damage(begin, "the checksum of a change's body is wrong"))
		}
		l.sums.setVerified(b, i)
		return l.readFile(p, off)
	}
	whole := p
	if int64(len(p)) < size {
		pooled := l.store.bufs.Get().(*[]byte)
		defer l.store.bufs.Put(pooled)
		whole = (*pooled)[:size]
	}
	if err := l.readFile(whole, begin); err != nil {
		return err
	}
	if crc(whole) != want {
		return l.found(l.damage(begin, "the checksum of a change's body is wrong"))
	}
	l.sums.setVerified(b, i)
	if int64(len(p)) < size {
		copy(p, whole[off-begin:])
	}
	return nil
}

// blockSum is the checksum that a block should have.
func (l *layer) blockSum(b bodySum, i int64) (uint32, error) {
	if !b.blocked {
		return b.crc, nil
	}
	if b.table == nil {
		b.table = make([]byte, tableSize(l.version, b.size))
		if err := l.readFile(b.table, b.offset+b.size); err != nil {
			return 0, err
		}
		if crc(b.table) != b.crc {
			return 0, l.found(l.damage(b.offset+b.size, "the checksum of a table of checksums is wrong"))
		}
		l.sums.setTable(b, b.table)
	}
	return order.Uint32(b.table[4*i:]), nil
}

func (b bodySum) blockAt(off int64) int64 {
	if !b.blocked {
		return 0
	}
	return (off - b.offset) / blockSize
}

// block is where a block of a body stands, and its size.
func (b bodySum) block(i int64) (begin, size int64) {
	if !b.blocked {
		return b.offset, b.size
	}
	return b.offset + i*blockSize, min(blockSize, b.size-i*blockSize)
}

// readFile reads all of p from l's file.
func (l *layer) readFile(p []byte, off int64) error {
	if _, err := l.store.files.readAt(l.id, p, off); err != nil {
		return l.unread(off, err)
	}
	return nil
}

// at reads one layer's file.
type at struct{ l *layer }

func (a at) ReadAt(p []byte, off int64) (int, error) {
	if err := a.l.readFile(p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}
