package dirs

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/driver/parcel"
)

type kind byte

const (
	madeDir kind = iota + 1
	madeFile
	madeLink
)

// An Importer makes the directories of a parcel, which is not trusted: what it makes
// lies in its folder and leads nowhere else.
type Importer struct {
	in    *parcel.Reader
	below string // with a slash
	set   Set
	root  *os.Root
	made  map[string]kind // by the name in the stream
	late  []*tar.Header   // directories, whose modes and times come last
}

// Import begins to make the directories that Export wrote below a name, in a
// folder that is there and empty. The set is what the parcel says of itself.
func Import(in *parcel.Reader, below string, set Set, folder string) (*Importer, error) {
	if err := set.Check(); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	return &Importer{in: in, below: below + "/", set: set, root: root, made: make(map[string]kind)}, nil
}

// Close lets the folder go.
func (i *Importer) Close() error { return i.root.Close() }

// Entry makes one file. Its parent is a directory that was made here, never a
// link, and nothing has its name yet: so no path leads through anything but
// directories of ours.
func (i *Importer) Entry(h *tar.Header) error {
	name := strings.TrimSuffix(h.Name, "/")
	local, err := i.place(name)
	if err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		i.late = append(i.late, h)
		i.made[name] = madeDir
		return i.root.Mkdir(local, 0o700)
	case tar.TypeReg:
		i.made[name] = madeFile
		return i.file(h, local)
	case tar.TypeSymlink:
		i.made[name] = madeLink
		if err := checkTarget(strings.TrimPrefix(name, i.below), h.Linkname); err != nil {
			return fmt.Errorf("%w; remove it before the export", err)
		}
		return i.root.Symlink(filepath.FromSlash(h.Linkname), local)
	case tar.TypeLink:
		first := strings.TrimSuffix(h.Linkname, "/")
		if i.made[first] != madeFile {
			return fmt.Errorf("it is a link to %.200q, which is no file before it", h.Linkname)
		}
		i.made[name] = madeFile
		return i.root.Link(i.local(first), local)
	}
	return fmt.Errorf("it is neither a file, a directory nor a link (type %q)", h.Typeflag)
}

// Finish is for after the last entry.
func (i *Importer) Finish() error {
	for _, name := range i.set.there() {
		if i.made[i.below+name] != madeDir {
			return fmt.Errorf("directory %q is missing", name)
		}
	}
	// What lies deeper first.
	for n := len(i.late) - 1; n >= 0; n-- {
		h := i.late[n]
		if err := i.dress(h, i.local(strings.TrimSuffix(h.Name, "/"))); err != nil {
			return err
		}
	}
	return nil
}

// place says where in the folder an entry goes.
func (i *Importer) place(name string) (string, error) {
	rest, ok := strings.CutPrefix(name, i.below)
	if !ok || len(name) > 4096 || path.Clean(name) != name || i.made[name] != 0 {
		return "", errors.New("it has no place in a state")
	}
	if _, err := filepath.Localize(rest); err != nil {
		return "", errors.New("it has no place in a state")
	}
	dir, _, deeper := strings.Cut(rest, "/")
	if !i.set[dir] || deeper && i.made[path.Dir(name)] != madeDir {
		return "", errors.New("it has no place in a state")
	}
	return i.local(name), nil
}

// local is where a valid name lies in the folder.
func (i *Importer) local(name string) string {
	return filepath.FromSlash(strings.TrimPrefix(name, i.below))
}

// checkTarget refuses a link that could lead out of its state directory. Steps
// upward come first and are no more than the directories above the link, which
// are real ones; from there it goes down, perhaps through links of which the
// same is true. The name is that of the link, from the directory of the state on.
func checkTarget(name, target string) error {
	out := fmt.Errorf("it is a link to %.200q, which leads out of the state", target)
	if target == "" || strings.ContainsAny(target, "\x00\\") || path.IsAbs(target) || filepath.VolumeName(target) != "" {
		return out
	}
	up := 0
	down := false
	for step := range strings.SplitSeq(target, "/") {
		switch {
		case step == "" || step == ".":
		case step == ".." && down:
			return out
		case step == "..":
			up++
		default:
			down = true
		}
	}
	// NAME/link may go up not at all.
	if above := strings.Count(name, "/") - 1; up > max(above, 0) {
		return out
	}
	return nil
}

func (i *Importer) file(h *tar.Header, local string) (err error) {
	f, err := i.root.OpenFile(local, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	w := &holes{f: f}
	if err = i.in.Copy(w); err == nil {
		err = w.finish()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return i.dress(h, local)
}

func (i *Importer) dress(h *tar.Header, local string) error {
	if err := i.root.Chtimes(local, time.Time{}, h.ModTime); err != nil {
		return err
	}
	return i.root.Chmod(local, fs.FileMode(h.Mode)&fs.ModePerm)
}

// holes writes a file and leaves out blocks that are zeros.
type holes struct {
	f    *os.File
	size int64
}

var zeros [64 << 10]byte

func (w *holes) Write(b []byte) (int, error) {
	if !bytes.Equal(b, zeros[:len(b)]) {
		if n, err := w.f.WriteAt(b, w.size); err != nil {
			w.size += int64(n)
			return n, err
		}
	}
	w.size += int64(len(b))
	return len(b), nil
}

func (w *holes) finish() error { return w.f.Truncate(w.size) }
