package workspace

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/tine-mcp/tine/internal/layer"
)

// sparsePrefix is how tar files say that they leave out zeros.
const sparsePrefix = "GNU.sparse."

// Export writes a frozen workspace of either kind as a tar file.
func (s *Store) Export(ctx context.Context, f Frozen, w io.Writer) error {
	if err := s.export(ctx, f, w); err != nil {
		return fmt.Errorf("export workspace: %w", err)
	}
	return nil
}

func (s *Store) export(ctx context.Context, f Frozen, w io.Writer) error {
	if err := f.check(); err != nil {
		return err
	}
	if f.Kind == KindFolder {
		from, err := openFolder(filepath.Join(f.Dir, filesName))
		if err != nil {
			return err
		}
		defer from.Close()
		return writeArchive(ctx, from, w)
	}
	return s.withTree(f.Layer, func(t *treeFS) error { return writeArchive(ctx, t, w) })
}

func writeArchive(ctx context.Context, from FS, w io.Writer) error {
	tw := tar.NewWriter(w)
	err := walkFS(ctx, from, func(name string, info Info) error {
		return writeEntry(from, name, info, tw, &tar.Header{Name: name, ModTime: info.Modified, Format: tar.FormatPAX})
	})
	if err != nil {
		return err
	}
	return tw.Close()
}

// writeEntry writes what a name stands for, with a header that has its name in the archive.
func writeEntry(from FS, name string, info Info, tw *tar.Writer, h *tar.Header) error {
	h.Mode = int64(info.Mode.Perm())
	switch info.Mode.Type() {
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		return tw.WriteHeader(h)
	case fs.ModeSymlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, info.Target
		return tw.WriteHeader(h)
	}
	file, err := from.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	h.Typeflag, h.Size = tar.TypeReg, file.Info().Size
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	return copyContent(tw, contentOf(file, h.Size), h.Size)
}

// Import makes a frozen tree of what Export wrote. It trusts nothing that it
// reads: names that lead out, links on the way of a name, names that come twice,
// and more than a workspace may have are refused. into is a folder that does not
// exist.
func (s *Store) Import(ctx context.Context, into string, r io.Reader) (Frozen, error) {
	into, err := filepath.Abs(into)
	if err != nil {
		return Frozen{}, fmt.Errorf("import workspace: %w", err)
	}
	f, err := s.hold(into, func() (layer.Ref, error) {
		return s.build(func(t *treeFS) error { return readArchive(ctx, &grower{fs: t}, r) })
	})
	if err != nil {
		return Frozen{}, fmt.Errorf("import workspace: %w", err)
	}
	return f, nil
}

func readArchive(ctx context.Context, g *grower, r io.Reader) error {
	ending := &endReader{r: r}
	tr := tar.NewReader(ending)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		if err := readEntry(g, h, tr); err != nil {
			return err
		}
	}
	// An archive that was cut off between two files looks whole but for its end.
	if ending.ended {
		return fmt.Errorf("the archive is cut off: %w", io.ErrUnexpectedEOF)
	}
	return g.finish()
}

func readEntry(g *grower, h *tar.Header, content io.Reader) error {
	info := Info{Mode: fs.FileMode(h.Mode).Perm(), Size: h.Size, Modified: h.ModTime, Target: h.Linkname}
	switch h.Typeflag {
	case tar.TypeReg:
	case tar.TypeDir:
		info.Mode |= fs.ModeDir
	case tar.TypeSymlink:
		info.Mode |= fs.ModeSymlink
	default:
		return fmt.Errorf("%q in the archive is neither a file nor a directory nor a link, but of type %q", h.Name, h.Typeflag)
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, sparsePrefix) {
			return fmt.Errorf("%q in the archive is a sparse file, which is refused", h.Name)
		}
	}
	return g.add(h.Name, info, content)
}

// An endReader remembers that there was nothing more to read.
type endReader struct {
	r     io.Reader
	ended bool
}

func (e *endReader) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if n == 0 && errors.Is(err, io.EOF) {
		e.ended = true
	}
	return n, err
}
