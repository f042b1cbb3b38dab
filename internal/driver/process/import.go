package process

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/driver"
)

// Import implements driver.Keeper. The stream may come from anybody: what it
// makes lies in dir and leads nowhere else, and there is a bound on how much.
func (d *Driver) Import(ctx context.Context, server, dir string, r io.Reader) (driver.Snapshot, error) {
	s, err := d.importInto(ctx, server, dir, r)
	if err != nil {
		return driver.Snapshot{}, fmt.Errorf("server %q: import a snapshot: %w", server, err)
	}
	return s, nil
}

func (d *Driver) importInto(ctx context.Context, server, dir string, r io.Reader) (_ driver.Snapshot, err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return driver.Snapshot{}, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return driver.Snapshot{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, clone.Remove(dir))
		}
	}()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return driver.Snapshot{}, err
	}
	defer root.Close()
	in := bounded{ctx, r}
	i := &importer{root: root, tar: tar.NewReader(in), bytes: d.opts.ImportBytes, files: d.opts.ImportFiles, made: make(map[string]kind)}
	if err := i.run(); err != nil {
		return driver.Snapshot{}, err
	}
	if n, err := in.Read(make([]byte, 1)); n > 0 || err == nil {
		return driver.Snapshot{}, errors.New("something follows its end")
	}
	return snapshot(server, dir, i.head.frozen, i.size)
}

type kind byte

const (
	madeDir kind = iota + 1
	madeFile
	madeLink
)

type importer struct {
	root  *os.Root
	tar   *tar.Reader
	bytes int64 // that may be made, at most
	files int

	head    exportHeader
	made    map[string]kind // by the name in the stream
	late    []*tar.Header   // directories, whose modes and times come last
	entries int
	size    int64
}

func (i *importer) run() error {
	h, err := i.tar.Next()
	if err != nil || h.Name != exportHead {
		return errors.New("it is not a snapshot of a program's state")
	}
	if err := i.text(h, &i.head); err != nil {
		return err
	}
	switch {
	case i.head.Format != exportFormat:
		return errors.New("it is not a snapshot of a program's state")
	case i.head.Version != exportVersion:
		return fmt.Errorf("it is of version %d, and this Tine reads %d", i.head.Version, exportVersion)
	}
	for name := range i.head.Dirs {
		if err := checkName(name); err != nil {
			return err
		}
	}
	for {
		h, err := i.tar.Next()
		switch {
		case errors.Is(err, io.EOF):
			return errors.New("it was cut off: its end is missing")
		case err != nil:
			return fmt.Errorf("it can't be read: %w", err)
		case h.Name == exportEnd:
			return i.finish(h)
		}
		if err := i.entry(h); err != nil {
			return fmt.Errorf("entry %.200q: %w", h.Name, err)
		}
	}
}

// text reads a small JSON entry.
func (i *importer) text(h *tar.Header, v any) error {
	if h.Typeflag != tar.TypeReg || h.Size > exportText {
		return fmt.Errorf("entry %q is not what it should be", h.Name)
	}
	b, err := io.ReadAll(i.tar)
	if err != nil {
		return fmt.Errorf("it can't be read: %w", err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("entry %q can't be read: %w", h.Name, err)
	}
	return nil
}

// entry makes one file. Its parent is a directory that was made here, never a
// link, and nothing has its name yet: so no path leads through anything but
// directories of ours.
func (i *importer) entry(h *tar.Header) error {
	if i.entries++; i.entries > i.files {
		return fmt.Errorf("it has more than %d files, which is the limit", i.files)
	}
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
		if err := checkTarget(name, h.Linkname); err != nil {
			return err
		}
		return i.root.Symlink(filepath.FromSlash(h.Linkname), local)
	case tar.TypeLink:
		first := strings.TrimSuffix(h.Linkname, "/")
		if i.made[first] != madeFile {
			return fmt.Errorf("it is a link to %.200q, which is no file before it", h.Linkname)
		}
		i.made[name] = madeFile
		return i.root.Link(localPath(first), local)
	}
	return fmt.Errorf("it is neither a file, a directory nor a link (type %q)", h.Typeflag)
}

// place says where in the folder an entry goes.
func (i *importer) place(name string) (string, error) {
	rest, ok := strings.CutPrefix(name, exportState+"/")
	if !ok || len(name) > 4096 || path.Clean(name) != name || i.made[name] != 0 {
		return "", errors.New("it has no place in a state")
	}
	if _, err := filepath.Localize(rest); err != nil {
		return "", errors.New("it has no place in a state")
	}
	dir, _, below := strings.Cut(rest, "/")
	if !i.head.Dirs[dir] || below && i.made[path.Dir(name)] != madeDir {
		return "", errors.New("it has no place in a state")
	}
	return localPath(name), nil
}

// localPath is where a valid name lies in the folder.
func localPath(name string) string {
	return filepath.FromSlash(strings.TrimPrefix(name, exportState+"/"))
}

// checkTarget refuses a link that could lead out of its state directory. Steps
// upward come first and are no more than the directories above the link, which
// are real ones; from there it goes down, perhaps through links of which the
// same is true.
func checkTarget(name, target string) error {
	out := fmt.Errorf("it is a link to %.200q, which leads out of the state; remove it before the export", target)
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
	// state/NAME/link may go up not at all.
	if above := strings.Count(name, "/") - 2; up > max(above, 0) {
		return out
	}
	return nil
}

func (i *importer) file(h *tar.Header, local string) (err error) {
	if h.Size > i.bytes-i.size {
		return fmt.Errorf("it has more than %d bytes, which is the limit", i.bytes)
	}
	f, err := i.root.OpenFile(local, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	w := &holes{f: f}
	n, err := io.CopyBuffer(w, i.tar, make([]byte, 64<<10))
	i.size += n
	if err == nil {
		err = w.finish()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return i.set(h, local)
}

func (i *importer) set(h *tar.Header, local string) error {
	if err := i.root.Chtimes(local, time.Time{}, h.ModTime); err != nil {
		return err
	}
	return i.root.Chmod(local, fs.FileMode(h.Mode)&fs.ModePerm)
}

// finish gives directories their times and modes, what lies deeper first.
func (i *importer) finish(h *tar.Header) error {
	var tail exportTail
	if err := i.text(h, &tail); err != nil {
		return err
	}
	if tail.Entries != i.entries {
		return fmt.Errorf("it has %d entries and says %d", i.entries, tail.Entries)
	}
	for name, there := range i.head.Dirs {
		if there && i.made[exportState+"/"+name] != madeDir {
			return fmt.Errorf("directory %q is missing", name)
		}
	}
	if _, err := i.tar.Next(); !errors.Is(err, io.EOF) {
		return errors.New("something follows its end")
	}
	for n := len(i.late) - 1; n >= 0; n-- {
		h := i.late[n]
		if err := i.set(h, localPath(strings.TrimSuffix(h.Name, "/"))); err != nil {
			return err
		}
	}
	return nil
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
