package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// unpacking is one archive on its way to a folder.
type unpacking struct {
	limits Limits
	part   string
	report func(int64)
	tmp    *os.File // the archive, when it was compressed
	tree   *tree

	bytes   int64 // uncompressed, of all layers
	written int64 // of files, which may have holes in the archive
	files   int
	links   int
	skipped int // devices and the like
}

// unpack makes part and, in it, the root of an archive.
func (s *Store) unpack(ctx context.Context, was stamp, part string) (_ Config, err error) {
	limits := s.Limits.filled()
	ctx, cancel := context.WithTimeoutCause(ctx, limits.Time, s.late())
	defer cancel()
	name := filepath.Base(was.Path)
	u := &unpacking{limits: limits, part: part, report: s.reporter("unpacking image " + name)}
	defer func() {
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("%w; make room where %s is", err, s.Dir)
		}
	}()
	f, err := os.Open(was.Path)
	if err != nil {
		return Config{}, fmt.Errorf("it can't be read: %w; mend the path or its permissions", unwrapped(err))
	}
	defer f.Close()
	if err := os.Mkdir(part, 0o700); err != nil {
		return Config{}, fmt.Errorf("make room for it: %w", err)
	}
	defer func() {
		if u.tmp != nil {
			u.tmp.Close()
			os.Remove(u.tmp.Name())
		}
	}()
	s.progress("unpacking image %s", name)
	a, err := u.openArchive(ctx, f)
	if err != nil {
		return Config{}, err
	}
	c, err := a.contents()
	if err != nil {
		return Config{}, err
	}
	if err := u.root(ctx, a, c); err != nil {
		return Config{}, err
	}
	if err := was.same(f); err != nil {
		return Config{}, err
	}
	if u.skipped > 0 {
		s.log().Info("left out devices, pipes and sockets of an image", "image", was.Path, "count", u.skipped)
	}
	s.progress("unpacked image %s: %d files, %s", name, u.files, size(u.written))
	return c.config, nil
}

// root writes the files of an image.
func (u *unpacking) root(ctx context.Context, a *archive, c contents) (err error) {
	dir := filepath.Join(u.part, rootName)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if u.tree, err = openTree(dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, u.tree.close()) }()
	if len(c.layers) == 0 {
		if _, err := a.f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		return u.apply(u.meter(ctx, a.f), false)
	}
	for i, l := range c.layers {
		if err := u.layer(ctx, a, l); err != nil {
			return fmt.Errorf("layer %d of %d: %w", i+1, len(c.layers), err)
		}
	}
	return nil
}

// layer applies one layer, and holds it against its digests.
func (u *unpacking) layer(ctx context.Context, a *archive, l layer) error {
	stored, err := a.open(l.name)
	if err != nil {
		return err
	}
	if l.size >= 0 && l.size != stored.Size() {
		return fmt.Errorf("%w: it has %d bytes instead of %d; write it anew", ErrFormat, stored.Size(), l.size)
	}
	for _, digest := range []string{l.digest, l.diff} {
		if digest != "" && !digestName.MatchString(digest) {
			return fmt.Errorf("%w: the digest %.150q in it is not known", ErrFormat, digest)
		}
	}
	var raw io.Reader = stored
	sum := sumOf(l.digest)
	if l.digest != "" {
		raw = io.TeeReader(stored, sum)
	}
	r, _, err := plain(raw, "a layer")
	if err != nil {
		return err
	}
	var diff hash.Hash
	if l.diff != "" {
		diff = sumOf(l.diff)
		r = io.TeeReader(r, diff)
	}
	if err := u.apply(u.meter(ctx, r), true); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, raw); err != nil {
		return err
	}
	if l.digest != "" {
		if err := equal("it", l.digest, sum); err != nil {
			return err
		}
	}
	if diff != nil {
		return equal("it", l.diff, diff)
	}
	return nil
}

// meter bounds what is uncompressed.
func (u *unpacking) meter(ctx context.Context, r io.Reader) io.Reader {
	return &metered{u, &reading{ctx: ctx, r: r}}
}

type metered struct {
	u *unpacking
	r io.Reader
}

func (m *metered) Read(b []byte) (int, error) {
	n, err := m.r.Read(b)
	m.u.bytes += int64(n)
	m.u.report(m.u.bytes)
	if m.u.bytes > m.u.limits.Bytes {
		return 0, m.u.limits.tooLarge()
	}
	return n, err
}

// apply writes the entries of a tar stream, which it reads to its end.
func (u *unpacking) apply(r io.Reader, whiteouts bool) error {
	u.tree.begin()
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) { // which is looked at below
			return damaged(err)
		}
		if u.files++; u.files > u.limits.Files {
			return u.limits.tooMany()
		}
		if err := u.entry(h, t, whiteouts); err != nil {
			return fmt.Errorf("%.200q in it: %w", h.Name, err)
		}
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return damaged(err)
	}
	return nil
}

// damaged is what is wrong with a stream; what is not its fault stays as it is.
func damaged(err error) error {
	if errors.Is(err, ErrLimit) || errors.Is(err, ErrFormat) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*os.PathError)) {
		return err
	}
	return fmt.Errorf("%w: it is damaged (%w); write it anew with docker save", ErrFormat, err)
}
