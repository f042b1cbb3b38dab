package workspace

import (
	"io"
	"io/fs"

	"github.com/tine-mcp/tine/internal/layer"
)

// A treeFile reads a file of a tree as it was when it was opened.
type treeFile struct {
	info  Info
	parts []layer.Extent
}

func (f *treeFile) Info() Info   { return f.info }
func (f *treeFile) Close() error { return nil }

func (f *treeFile) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fs.ErrInvalid
	}
	done := 0
	for done < len(p) {
		if off >= f.info.Size {
			return done, io.EOF
		}
		stride := f.parts[0].Size()
		part, in := f.parts[off/stride], off%stride
		want := min(int64(len(p)-done), part.Size()-in)
		n, err := part.ReadAt(p[done:done+int(want)], in)
		done += n
		off += int64(n)
		if int64(n) < want {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return done, err
		}
	}
	return done, nil
}
