package layer

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
)

// An exported chain is a magic, a version and the number of layers, then from
// the bottom up each layer's file with its length before and its SHA-256 after.
const (
	streamMagic   = "tinechn\n"
	streamVersion = 1
	streamLayers  = 100_000
	streamHead    = len(streamMagic) + 4 + 4
)

// Export writes the whole chain as one stream, after checking every layer.
func (s *Store) Export(ref Ref, w io.Writer) error {
	l, done, err := s.hold(ref)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	defer done()
	chain := l.chain()
	if len(chain) > streamLayers {
		return fmt.Errorf("export layer %s: it stands on %d others; at most %d can be exported", ref.ID, len(chain)-1, streamLayers-1)
	}
	buf := bufio.NewWriter(w)
	head := append([]byte(streamMagic), make([]byte, 8)...)
	order.PutUint32(head[8:], streamVersion)
	order.PutUint32(head[12:], uint32(len(chain)))
	buf.Write(head)
	for i := len(chain) - 1; i >= 0; i-- {
		if err := chain[i].export(buf); err != nil {
			return fmt.Errorf("export layer %s: %w", chain[i].id, err)
		}
	}
	if err := buf.Flush(); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return nil
}

func (l *layer) export(w io.Writer) error {
	if err := l.check(); err != nil {
		return err
	}
	var length [8]byte
	order.PutUint64(length[:], uint64(l.end))
	if _, err := w.Write(length[:]); err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w, sum), io.NewSectionReader(at{l}, 0, l.end)); err != nil {
		return err
	}
	_, err := w.Write(sum.Sum(nil))
	return err
}

// check reads all of a sealed layer.
func (l *layer) check() error {
	sc := l.scanner()
	sc.bodies = true
	_, _, err := sc.scan(nil)
	return l.sealedError(err)
}

// Import reads what Export wrote, which may come from anywhere: all of it is
// checked before any of it counts. The layers get new ids. How much may be read
// in all is for the caller to limit. The caller owns one reference.
func (s *Store) Import(r io.Reader) (Ref, error) {
	s.mu.Lock()
	err := s.usable()
	s.mu.Unlock()
	var chain []*layer
	if err == nil {
		chain, err = s.receive(r)
	}
	if err != nil {
		for _, l := range chain {
			if l.end > 0 {
				err = errors.Join(err, s.files.remove(l.id))
			}
		}
		return Ref{}, fmt.Errorf("import: %w", err)
	}
	if len(chain) == 0 {
		return Ref{}, nil
	}
	top := chain[len(chain)-1]
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range chain {
		s.layers[l.id] = l
		l.kids = 1
	}
	top.kids, top.pins = 0, 1
	return Ref{top.id}, nil
}

// receive makes the files of the chain. What it returns is to be removed when
// there is an error.
func (s *Store) receive(r io.Reader) (chain []*layer, err error) {
	head := make([]byte, streamHead)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, fmt.Errorf("read the beginning: %w", err)
	}
	version, count := order.Uint32(head[8:]), order.Uint32(head[12:])
	switch {
	case !bytes.HasPrefix(head, []byte(streamMagic)):
		return nil, errors.New("this is no export of layers")
	case version != streamVersion:
		return nil, fmt.Errorf("an export of version %d, this Tine reads version %d", version, streamVersion)
	case count > streamLayers:
		return nil, fmt.Errorf("%d layers; at most %d are read", count, streamLayers)
	}
	var parent *layer
	was := "" // the id that the last one had where it comes from
	for i := range count {
		l := s.newLayer(parent)
		chain = append(chain, l)
		if was, err = l.receive(r, was); err != nil {
			return chain, fmt.Errorf("layer %d of %d: %w", i+1, count, err)
		}
		parent = l
	}
	switch n, err := io.ReadFull(r, head[:1]); {
	case n > 0:
		return chain, errors.New("there is more after the last layer")
	case err != io.EOF:
		return chain, fmt.Errorf("read the end: %w", err)
	}
	return chain, nil
}

// receive reads one layer into a file of its own, with its own id and parent in
// the place of those it had. It returns the id it had.
func (l *layer) receive(r io.Reader, parent string) (was string, err error) {
	head := make([]byte, 8+headerSize)
	if _, err := io.ReadFull(r, head); err != nil {
		return "", noEOF(err)
	}
	size := order.Uint64(head)
	if size < headerSize || size > maxBody {
		return "", fmt.Errorf("a length of %d bytes", size)
	}
	sum := sha256.New()
	sum.Write(head[8:])
	h, err := decodeFileHeader(head[8:])
	if err != nil {
		return "", err
	}
	if h.parent != parent {
		return "", fmt.Errorf("it stands on %q, the one before it is %q", h.parent, parent)
	}
	l.salt, l.version = h.salt, h.version
	if err := l.create(); err != nil {
		return "", err
	}
	l.end = headerSize // all that follows is received
	files := l.store.files
	buf := l.store.bufs.Get().(*[]byte)
	defer l.store.bufs.Put(buf)
	for l.end < int64(size) {
		b := (*buf)[:min(chunk, int64(size)-l.end)]
		if _, err := io.ReadFull(r, b); err != nil {
			return "", noEOF(err)
		}
		sum.Write(b)
		if err := files.writeAt(l.id, b, l.end); err != nil {
			return "", err
		}
		l.end += int64(len(b))
	}
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(r, want); err != nil {
		return "", noEOF(err)
	}
	if !bytes.Equal(want, sum.Sum(nil)) {
		return "", errors.New("its SHA-256 is wrong")
	}
	if l.next() == headerSize {
		return "", errors.New("it is empty")
	}
	return h.id, l.check()
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
