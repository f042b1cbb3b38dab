package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// maxText bounds a manifest, an index or a config.
const maxText = 4 << 20

// archive is a tar file whose entries can be read in any order.
type archive struct {
	f       *os.File
	entries map[string]entry
}

type entry struct {
	at, size int64
	link     string // of a link, the name that it is another one of
}

// magics are how compressed files begin.
var magics = []struct {
	name  string
	magic string
	open  func(io.Reader) (io.Reader, error)
}{
	{"gzip", "\x1f\x8b", func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
	{"bzip2", "BZh", func(r io.Reader) (io.Reader, error) { return bzip2.NewReader(r), nil }},
	{"zstd", "\x28\xb5\x2f\xfd", nil},
	{"xz", "\xfd7zXZ\x00", nil},
	{"lz4", "\x04\x22\x4d\x18", nil},
}

// plain uncompresses what is compressed, and says whether it was.
func plain(r io.Reader, what string) (io.Reader, bool, error) {
	b := bufio.NewReaderSize(r, 256<<10)
	head, err := b.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	for _, m := range magics {
		if !bytes.HasPrefix(head, []byte(m.magic)) {
			continue
		}
		if m.open == nil {
			return nil, false, fmt.Errorf("%w: %s is compressed with %s, which can't be read here; write it uncompressed or with gzip, as docker save does", ErrFormat, what, m.name)
		}
		u, err := m.open(b)
		if err != nil {
			return nil, false, fmt.Errorf("%w: %s is damaged: %w", ErrFormat, what, err)
		}
		return u, true, nil
	}
	return b, false, nil
}

// openArchive opens an archive. One that is compressed is written to the folder
// first, since its entries come in any order.
func (u *unpacking) openArchive(ctx context.Context, f *os.File) (*archive, error) {
	r, packed, err := plain(&reading{ctx: ctx, r: f}, "the archive")
	if err != nil {
		return nil, err
	}
	if packed {
		tmp, err := os.OpenFile(filepath.Join(u.part, "archive.tar"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		u.tmp = tmp
		if err := u.copy(ctx, tmp, r); err != nil {
			return nil, err
		}
		f = tmp
	}
	a := &archive{f: f, entries: map[string]entry{}}
	return a, a.list(ctx, u.limits)
}

// copy writes what an archive is when it is not compressed.
func (u *unpacking) copy(ctx context.Context, to io.Writer, from io.Reader) error {
	n, err := io.Copy(to, io.LimitReader(&reading{ctx: ctx, r: from, report: u.report}, u.limits.Bytes+1))
	switch {
	case err != nil && ctx.Err() == nil:
		return fmt.Errorf("%w: it is damaged: %w", ErrFormat, err)
	case err != nil:
		return err
	case n > u.limits.Bytes:
		return u.limits.tooLarge()
	}
	return nil
}

func (l Limits) tooLarge() error {
	return fmt.Errorf("%w: it has more than %s; use a smaller image, or raise the limit", ErrLimit, size(l.Bytes))
}

func (l Limits) tooMany() error {
	return fmt.Errorf("%w: it has more than %d files; use a smaller image, or raise the limit", ErrLimit, l.Files)
}

// list finds where the entries are.
func (a *archive) list(ctx context.Context, l Limits) error {
	if _, err := a.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	t := tar.NewReader(a.f)
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			if n == 0 {
				return fmt.Errorf("%w: the archive is empty; write it anew with docker save", ErrFormat)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: it is no tar file, or damaged (%w); write it anew with docker save", ErrFormat, err)
		}
		if n >= l.Files {
			return l.tooMany()
		}
		// The reader takes whole blocks and no more, so that this is where the
		// content begins.
		at, err := a.f.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		switch h.Typeflag {
		case tar.TypeReg:
			a.entries[name] = entry{at: at, size: h.Size}
		case tar.TypeSymlink:
			a.entries[name] = entry{link: strings.TrimPrefix(path.Join("/", path.Dir(name), h.Linkname), "/")}
		case tar.TypeLink:
			a.entries[name] = entry{link: strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")}
		}
	}
}

func (a *archive) find(name string) (entry, bool) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	for range 8 {
		e, ok := a.entries[name]
		if !ok || e.link == "" {
			return e, ok
		}
		name = e.link // older ones have a layer once, and links to it
	}
	return entry{}, false
}

func (a *archive) open(name string) (*io.SectionReader, error) {
	e, ok := a.find(name)
	if !ok {
		return nil, fmt.Errorf("%w: %s is missing in it; write it anew with docker save", ErrFormat, name)
	}
	return io.NewSectionReader(a.f, e.at, e.size), nil
}

// text reads a small entry.
func (a *archive) text(name string) ([]byte, error) {
	r, err := a.open(name)
	if err != nil {
		return nil, err
	}
	b, err := readAll(r, maxText)
	if err != nil {
		return nil, fmt.Errorf("%s in it: %w", name, err)
	}
	if int64(len(b)) != r.Size() {
		return nil, fmt.Errorf("%w: it was cut off; write it anew with docker save", ErrFormat)
	}
	return b, nil
}
