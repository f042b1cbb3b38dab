package workspace

import (
	"encoding/binary"
	"errors"
	"io/fs"
)

// What a change of a tree can be. The numbers are in layer files and stay.
const (
	opWrite  = 1 // a file is at path: the parts of an upload, if it has one, and the body
	opMkdir  = 2 // a directory is made at path
	opLink   = 3 // a link to other is made at path
	opRename = 4 // what is at path goes to other
	opRemove = 5 // what is at path goes, with all below
	opTouch  = 6 // path gets a mode and times
	opPart   = 7 // the body continues an upload
	opDrop   = 8 // an upload is given up; 0 for all of them
)

// A change is one step of a tree, as it is written to a layer. Paths are resolved:
// slash-separated from the root, without a link on the way; the root is empty.
type change struct {
	op       byte
	path     string
	other    string
	mode     fs.FileMode // permissions only
	modified int64
	created  int64
	upload   uint64
}

var errDamaged = errors.New("change is damaged")

func (c change) encode() []byte {
	b := make([]byte, 0, 48+len(c.path)+len(c.other))
	b = append(b, c.op)
	b = appendText(b, c.path)
	b = appendText(b, c.other)
	b = binary.AppendUvarint(b, uint64(c.mode.Perm()))
	b = binary.AppendVarint(b, c.modified)
	b = binary.AppendVarint(b, c.created)
	return binary.AppendUvarint(b, c.upload)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func decode(meta []byte) (change, error) {
	if len(meta) == 0 {
		return change{}, errDamaged
	}
	r := reader{rest: meta[1:]}
	c := change{op: meta[0]}
	c.path, c.other = r.text(), r.text()
	c.mode = fs.FileMode(r.uvarint()).Perm()
	c.modified, c.created = r.varint(), r.varint()
	c.upload = r.uvarint()
	if r.bad || len(r.rest) > 0 {
		return change{}, errDamaged
	}
	return c, nil
}

// A reader takes fields off a change, and remembers that one was cut.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) skip(n int) {
	if n <= 0 {
		r.bad, r.rest = true, nil
		return
	}
	r.rest = r.rest[n:]
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	r.skip(n)
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.rest)
	r.skip(n)
	return v
}

func (r *reader) text() string {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}
