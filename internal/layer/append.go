package layer

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// begin makes own's file, which a state gets with its first change only, and has
// the head say so.
func (st *state) begin() error {
	own := st.own
	if own.end == 0 {
		if err := own.create(); err != nil {
			return err
		}
	}
	if st.begun {
		return nil
	}
	if err := replaceHead(st.dir, headOf(own, true)); err != nil {
		return err
	}
	st.begun = true
	return nil
}

// create makes the file of a layer, without records.
func (l *layer) create() error {
	files := l.store.files
	if err := files.create(l.id); err != nil {
		return fmt.Errorf("create layer: %w", err)
	}
	h := fileHeader{version: l.version, id: l.id, salt: l.salt}
	if l.parent != nil {
		h.parent = l.parent.id
	}
	b := h.encode()
	if l.version != oldVersion {
		b = append(b, endMarker(0, l.salt)...)
	}
	if err := files.writeAt(l.id, b, 0); err != nil {
		return errors.Join(fmt.Errorf("create layer %s: %w", l.id, err), files.remove(l.id))
	}
	l.end = int64(len(b))
	return nil
}

// next is where the next record begins: in the place of the end marker.
func (l *layer) next() int64 {
	if l.version == oldVersion {
		return align(l.end)
	}
	return l.end - recordSize
}

// append writes one record after the last and returns the file's new size; l is
// not changed. When it fails, undo makes the file what it was. Apply is called when
// the body can be read; only the write after that makes the record count.
func (l *layer) append(meta []byte, body io.Reader, size int64, apply func(Extent) error) (end int64, err error) {
	switch {
	case len(meta) > maxMeta:
		return 0, fmt.Errorf("a change of %d bytes; at most %d, put the rest into the body", len(meta), maxMeta)
	case size < 0 || size > maxBody:
		return 0, fmt.Errorf("a body of %d bytes", size)
	case body == nil && size > 0:
		return 0, fmt.Errorf("a body of %d bytes without a reader", size)
	case body == nil:
		body = eof{}
	}
	pooled := l.store.bufs.Get().(*[]byte)
	defer l.store.bufs.Put(pooled)
	begin := l.next()
	w := chunks{l: l, at: begin, buf: (*pooled)[:recordSize]}
	h := recordHeader{kind: kindOpen, metaLen: uint32(len(meta)), bodyLen: size, metaCRC: crc(meta), number: l.count}
	h.encode(w.buf, l.salt)
	if err := w.write(meta); err != nil {
		return 0, err
	}
	if h.bodyCRC, err = w.copy(body, size); err != nil {
		return 0, err
	}
	if l.version != oldVersion {
		var gap [recordSize]byte
		if err := w.write(gap[:align(w.end())-w.end()]); err != nil {
			return 0, err
		}
		if err := w.write(endMarker(l.count+1, l.salt)); err != nil {
			return 0, err
		}
	}
	if err := w.flush(); err != nil {
		return 0, err
	}
	if err := apply(Extent{l, begin + recordSize + int64(len(meta)), size}); err != nil {
		return 0, err
	}
	end = w.at
	w.at, w.buf = begin, w.buf[:recordSize]
	h.kind = kindWhole
	h.encode(w.buf, l.salt)
	return end, w.flush()
}

// chunks writes to a layer's file from at on, a buffer at a time.
type chunks struct {
	l   *layer
	at  int64
	buf []byte
}

// end is where the next byte will stand.
func (w *chunks) end() int64 { return w.at + int64(len(w.buf)) }

func (w *chunks) flush() error {
	if err := w.l.store.files.writeAt(w.l.id, w.buf, w.at); err != nil {
		return fmt.Errorf("write layer %s at %d: %w", w.l.id, w.at, err)
	}
	w.at += int64(len(w.buf))
	w.buf = w.buf[:0]
	return nil
}

func (w *chunks) write(p []byte) error {
	for len(p) > 0 {
		if len(w.buf) == cap(w.buf) {
			if err := w.flush(); err != nil {
				return err
			}
		}
		n := copy(w.buf[len(w.buf):cap(w.buf)], p)
		w.buf = w.buf[:len(w.buf)+n]
		p = p[n:]
	}
	return nil
}

// copy writes a body of exactly size bytes, with its table where it gets one, and
// gives the checksum for the record's header.
func (w *chunks) copy(r io.Reader, size int64) (sum uint32, err error) {
	table := make([]byte, 0, tableSize(w.l.version, size))
	for done := int64(0); done < size; {
		if len(w.buf) == cap(w.buf) {
			if err := w.flush(); err != nil {
				return 0, err
			}
		}
		at := len(w.buf)
		n := min(int64(cap(w.buf)-at), size-done)
		if cap(table) > 0 {
			n = min(n, blockSize-done%blockSize)
		}
		b := w.buf[at : at+int(n)]
		if err := readBody(r, b, size, done); err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, castagnoli, b)
		w.buf = w.buf[:at+len(b)]
		done += n
		if cap(table) > 0 && (done%blockSize == 0 || done == size) {
			table, sum = order.AppendUint32(table, sum), 0
		}
	}
	if err := ended(r, size); err != nil || cap(table) == 0 {
		return sum, err
	}
	return crc(table), w.write(table)
}

func readBody(r io.Reader, b []byte, size, done int64) error {
	n, err := io.ReadFull(r, b)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("the body ended after %d of %d bytes: %w", done+int64(n), size, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return fmt.Errorf("read the body at %d: %w", done+int64(n), err)
	}
	return nil
}

// ended checks that a body is not longer than its announced size.
func ended(r io.Reader, size int64) error {
	var one [1]byte
	switch n, err := io.ReadFull(r, one[:]); {
	case n > 0:
		return fmt.Errorf("the body has more than its %d bytes", size)
	case err != io.EOF:
		return fmt.Errorf("read the body at %d: %w", size, err)
	}
	return nil
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }
