package layer

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
)

// A layer's file is a header, records and an end marker, each at a multiple of
// recordSize:
//
//	header  magic, version, own id, parent's id (0: none), salt, checksum
//	record  kind, lengths and checksums of meta and body, number, checksum; then meta, body, table
//	end     a record's header of kind kindEnd, whose number is the count of records
//
// A record's header never crosses a page, so the death of the process leaves
// all of it or nothing. A record begins as kindOpen, in the place of the end
// marker, and becomes kindWhole with its last write, when everything after its
// header, the new end marker included, is in the file. So the death of the
// process leaves an end marker or an open record at the end, and a file that ends
// in any other way has lost records that were acknowledged.
//
// The checksum of a record's header covers the file's salt, so that a body which
// happens to hold a layer is not taken for records of this one.
//
// A body of more than blockSize bytes has one checksum a block, in a table after
// it, and the record's header has the checksum of the table: reading a little of
// a large body verifies a block of it and not all.
//
// Version 1 had neither end markers nor tables: the file ends with its last
// record, and a body has one checksum. Its layers are read and continued as they
// are; every layer that is made is of version 2.
const (
	headerSize = 64
	recordSize = 32
	blockSize  = 64 << 10

	fileMagic   = "tinelyr\n"
	fileVersion = 2
	oldVersion  = 1

	kindOpen  = 0x6e65706f
	kindWhole = 0x656c6f68
	kindEnd   = 0x20646e65

	maxMeta = 64 << 20
	maxBody = 1 << 50

	idPrefix   = "lyr_"
	fileSuffix = ".log"
	cutSuffix  = ".cut" // of ends that were cut off damaged files
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	order      = binary.LittleEndian
)

func crc(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// align is the next place where a record may begin.
func align(off int64) int64 { return (off + recordSize - 1) &^ (recordSize - 1) }

func random() uint64 {
	var b [8]byte
	for {
		rand.Read(b[:])
		if n := order.Uint64(b[:]); n != 0 {
			return n
		}
	}
}

func newID() string { return idPrefix + fmt.Sprintf("%016x", random()) }

// parseID also guards paths: an id that passes names a file in the store's
// folder and nothing else.
func parseID(id string) (uint64, error) {
	var b [8]byte
	digits, ok := strings.CutPrefix(id, idPrefix)
	if !ok || len(digits) != 16 || strings.ToLower(digits) != digits {
		return 0, fmt.Errorf("%.40q is not the id of a layer", id)
	}
	if _, err := hex.Decode(b[:], []byte(digits)); err != nil {
		return 0, fmt.Errorf("%.40q is not the id of a layer", id)
	}
	n := binary.BigEndian.Uint64(b[:])
	if n == 0 {
		return 0, fmt.Errorf("%.40q is not the id of a layer", id)
	}
	return n, nil
}

type fileHeader struct {
	version    uint32
	id, parent string // parent is empty at the bottom
	salt       uint64
}

func (h fileHeader) encode() []byte {
	b := make([]byte, headerSize)
	copy(b, fileMagic)
	order.PutUint32(b[8:], h.version)
	id, _ := parseID(h.id)
	order.PutUint64(b[16:], id)
	if h.parent != "" {
		id, _ = parseID(h.parent)
		order.PutUint64(b[24:], id)
	}
	order.PutUint64(b[32:], h.salt)
	order.PutUint32(b[headerSize-4:], crc(b[:headerSize-4]))
	return b
}

func decodeFileHeader(b []byte) (fileHeader, error) {
	switch {
	case len(b) < headerSize:
		return fileHeader{}, errors.New("too short for a layer")
	case string(b[:8]) != fileMagic:
		return fileHeader{}, errors.New("not a layer")
	case order.Uint32(b[headerSize-4:]) != crc(b[:headerSize-4]):
		return fileHeader{}, errors.New("header damaged")
	case order.Uint32(b[8:]) < oldVersion || order.Uint32(b[8:]) > fileVersion:
		return fileHeader{}, fmt.Errorf("layer of version %d, this Tine reads versions %d to %d", order.Uint32(b[8:]), oldVersion, fileVersion)
	}
	h := fileHeader{version: order.Uint32(b[8:]), id: fmt.Sprintf(idPrefix+"%016x", order.Uint64(b[16:])), salt: order.Uint64(b[32:])}
	if p := order.Uint64(b[24:]); p != 0 {
		h.parent = fmt.Sprintf(idPrefix+"%016x", p)
	}
	return h, nil
}

type recordHeader struct {
	kind             uint32
	metaLen          uint32
	bodyLen          int64
	metaCRC, bodyCRC uint32 // bodyCRC is that of the table where there is one
	number           uint32
}

// tableSize is how long the table of checksums after a body is.
func tableSize(version uint32, body int64) int64 {
	if version == oldVersion || body <= blockSize {
		return 0
	}
	return 4 * ((body + blockSize - 1) / blockSize)
}

// endMarker is what stands after the last of count records.
func endMarker(count uint32, salt uint64) []byte {
	b := make([]byte, recordSize)
	recordHeader{kind: kindEnd, number: count}.encode(b, salt)
	return b
}

func (r recordHeader) encode(b []byte, salt uint64) {
	order.PutUint32(b, r.kind)
	order.PutUint32(b[4:], r.metaLen)
	order.PutUint64(b[8:], uint64(r.bodyLen))
	order.PutUint32(b[16:], r.metaCRC)
	order.PutUint32(b[20:], r.bodyCRC)
	order.PutUint32(b[24:], r.number)
	order.PutUint32(b[28:], recordCRC(b, salt))
}

func recordCRC(b []byte, salt uint64) uint32 {
	var s [8]byte
	order.PutUint64(s[:], salt)
	return crc32.Update(crc(s[:]), castagnoli, b[:28])
}

func decodeRecord(b []byte, salt uint64) (recordHeader, bool) {
	r := recordHeader{
		kind:    order.Uint32(b),
		metaLen: order.Uint32(b[4:]),
		metaCRC: order.Uint32(b[16:]),
		bodyCRC: order.Uint32(b[20:]),
		number:  order.Uint32(b[24:]),
	}
	body := order.Uint64(b[8:])
	if r.kind != kindOpen && r.kind != kindWhole && r.kind != kindEnd || order.Uint32(b[28:]) != recordCRC(b, salt) ||
		r.metaLen > maxMeta || body > min(maxBody, math.MaxInt64) {
		return r, false
	}
	r.bodyLen = int64(body)
	return r, true
}
