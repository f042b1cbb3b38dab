package sqlite

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/store"
)

// A block is up to blockCalls calls of one segment, in the order of Seq, as one
// row. Its data is a checksum of the rest, four bytes; then the texts that stand
// in the calls, each once: how many, and of each its length and bytes; then how
// many calls, and of each
//
//	Seq, At             as the difference to the call before
//	six texts           principal, session, server, method, name, outcome, by number
//	Duration
//	Offset              as the difference to the end of the call before
//	Length
//
// All numbers are varints, signed ones for what may be below zero.
//
// A block with calls of runs has two bytes before the texts, a zero, which no number of
// texts is, and formRuns; and in each call a seventh text, the run. In a block without
// them no call has a run.
const (
	blockCalls = 512
	// minCall is the least that a call takes.
	minCall = 11
	// formRuns is the form of a block with runs.
	formRuns = 1
	// plainTexts are the texts of a call in a block without runs.
	plainTexts = 6
)

// The kinds of texts in a block, for the sets of the block.
const (
	isPrincipal = 1 << iota
	isSession
	isServer
	isRun
)

var errBlock = errors.New("a block of the index of calls is damaged")

// block is a row.
type block struct {
	first, last, segment          int64
	newest                        int64 // greatest At
	size, failed                  int
	servers, principals, sessions []byte // sets
	runs                          []byte // a set too, empty in a block without runs
	data                          []byte
}

// blockWriter makes blocks. The data of one is valid until the next is made.
type blockWriter struct {
	numbers map[string]uint64
	texts   []string
	is      []uint8
	body    []byte
	data    []byte
}

// block makes a block of calls that fit into one.
func (w *blockWriter) block(calls []store.Call) block {
	if w.numbers == nil {
		w.numbers = make(map[string]uint64)
	}
	clear(w.numbers)
	w.texts, w.is, w.body = w.texts[:0], w.is[:0], w.body[:0]

	b := block{first: calls[0].Seq, last: calls[len(calls)-1].Seq, segment: calls[0].Segment, newest: atNumber(calls[0].At), size: len(calls)}
	texts := plainTexts
	if slices.ContainsFunc(calls, func(c store.Call) bool { return c.Run != "" }) {
		texts = len(kinds)
	}
	before := &store.Call{}
	var at, end int64
	var numbers [len(kinds)]uint64
	for i := range calls {
		c := &calls[i]
		now := atNumber(c.At)
		b.newest = max(b.newest, now)
		if c.Outcome != api.OutcomeOK {
			b.failed++
		}
		w.body = binary.AppendUvarint(w.body, uint64(c.Seq-before.Seq))
		w.body = binary.AppendVarint(w.body, now-at)
		is, was := fields(c), fields(before)
		for k, text := range is[:texts] {
			// Most calls are like the one before.
			if i == 0 || *text != *was[k] {
				numbers[k] = w.number(*text)
				w.is[numbers[k]] |= kinds[k]
			}
			w.body = binary.AppendUvarint(w.body, numbers[k])
		}
		w.body = binary.AppendVarint(w.body, int64(c.Duration))
		w.body = binary.AppendVarint(w.body, c.Offset-end)
		w.body = binary.AppendVarint(w.body, c.Length)
		before, at, end = c, now, c.Offset+c.Length
	}
	b.principals, b.sessions, b.servers, b.runs = w.set(isPrincipal), w.set(isSession), w.set(isServer), w.set(isRun)

	data := append(w.data[:0], 0, 0, 0, 0)
	if texts > plainTexts {
		data = append(data, 0, formRuns)
	}
	data = binary.AppendUvarint(data, uint64(len(w.texts)))
	for _, text := range w.texts {
		data = binary.AppendUvarint(data, uint64(len(text)))
		data = append(data, text...)
	}
	data = binary.AppendUvarint(data, uint64(len(calls)))
	data = append(data, w.body...)
	binary.LittleEndian.PutUint32(data, crc32.ChecksumIEEE(data[4:]))
	b.data, w.data = data, data
	return b
}

// kinds says what the texts of a call are, as fields returns them.
var kinds = [plainTexts + 1]uint8{0: isPrincipal, 1: isSession, 2: isServer, plainTexts: isRun}

func fields(c *store.Call) [len(kinds)]*string {
	return [len(kinds)]*string{&c.Principal, &c.Session, &c.Server, &c.Method, &c.Name, &c.Outcome, &c.Run}
}

func (w *blockWriter) number(text string) uint64 {
	n, ok := w.numbers[text]
	if !ok {
		n = uint64(len(w.texts))
		w.numbers[text] = n
		w.texts = append(w.texts, text)
		w.is = append(w.is, 0)
	}
	return n
}

// set holds the marks of the texts of one kind. A text whose mark is not in it is
// not in the block.
func (w *blockWriter) set(kind uint8) []byte {
	set := []byte{} // never NULL
	for i, text := range w.texts {
		if w.is[i]&kind != 0 {
			set = append(set, mark(text)...)
		}
	}
	return set
}

// mark is a few bytes that stand for a text. Other texts may have the same mark, or
// it may occur where two marks meet, which costs one needless read of a block.
func mark(text string) []byte {
	return binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(text)))
}

// readBlock appends the calls of a block, without their ids, to calls.
func readBlock(calls []store.Call, data []byte, segment int64) ([]store.Call, error) {
	if len(data) < 4 || binary.LittleEndian.Uint32(data) != crc32.ChecksumIEEE(data[4:]) {
		return nil, errBlock
	}
	return readCalls(calls, data[4:], segment)
}

func readCalls(calls []store.Call, data []byte, segment int64) ([]store.Call, error) {
	r := blockReader{data: data}
	each := plainTexts
	if len(data) > 1 && data[0] == 0 {
		if data[1] != formRuns {
			return nil, errBlock
		}
		each, r.data = len(kinds), data[2:]
	}
	texts := make([]string, 0, r.count(1))
	for range cap(texts) {
		texts = append(texts, string(r.bytes(r.count(1))))
	}
	var seq, at, end int64
	n := r.count(minCall)
	if n == 0 {
		return nil, errBlock
	}
	calls = slices.Grow(calls, n)
	for range n {
		step := r.uvarint()
		if int64(step) <= 0 || seq+int64(step) < seq {
			return nil, errBlock
		}
		seq += int64(step)
		at += r.varint()
		calls = append(calls, store.Call{Seq: seq, At: atTime(at), Segment: segment})
		c := &calls[len(calls)-1]
		of := fields(c)
		for _, text := range of[:each] {
			i := r.uvarint()
			if i >= uint64(len(texts)) {
				return nil, errBlock
			}
			*text = texts[i]
		}
		c.Duration = time.Duration(r.varint())
		c.Offset = end + r.varint()
		c.Length = r.varint()
		end = c.Offset + c.Length
	}
	if r.bad || len(r.data) > 0 {
		return nil, errBlock
	}
	return calls, nil
}

// blockReader takes numbers and bytes off data. After a fault it returns zeros.
type blockReader struct {
	data []byte
	bad  bool
}

func (r *blockReader) uvarint() uint64 {
	if len(r.data) > 0 && r.data[0] < 0x80 { // most are
		v := r.data[0]
		r.data = r.data[1:]
		return uint64(v)
	}
	return r.long()
}

func (r *blockReader) long() uint64 {
	v, n := binary.Uvarint(r.data)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.data = r.data[n:]
	return v
}

func (r *blockReader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// count is a number of things that take at least so many bytes each; more than the
// data can hold is a fault.
func (r *blockReader) count(each int) int {
	n := r.uvarint()
	if n > uint64(len(r.data)/each) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *blockReader) bytes(n int) []byte {
	b := r.data[:n]
	r.data = r.data[n:]
	return b
}

func (r *blockReader) fail() { r.data, r.bad = nil, true }

// atNumber and atTime are as nanos and fromNanos, but for the zero time, which
// is before all others here.
func atNumber(t time.Time) int64 { return t.UnixNano() }

func atTime(n int64) time.Time {
	if n == (time.Time{}).UnixNano() {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
