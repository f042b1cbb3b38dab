package workspace

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// contentOf reads a file from its beginning.
func contentOf(f io.ReaderAt, size int64) io.Reader { return io.NewSectionReader(f, 0, size) }

// A grower puts what comes from elsewhere into a new tree: with its modes and
// times, and without following a link that came before.
type grower struct {
	fs       *treeFS
	dirs     []change // to be given their times when nothing more is put into them
	root     bool     // it is among dirs
	progress func(done, total int64)
	done     int64
	total    int64
}

// add puts one entry into its directory, which is there already. The root is ".".
func (g *grower) add(name string, info Info, content io.Reader) error {
	at, err := elements(name)
	if err != nil {
		return pathError("import", name, err)
	}
	for _, e := range at {
		if e == ".." {
			return pathError("import", name, ErrEscape)
		}
	}
	c := change{path: strings.Join(at, "/"), mode: info.Mode.Perm(), modified: nanos(info.Modified)}
	return pathError("import", name, g.put(c, info, content))
}

// nanos is a time that came from elsewhere. Zero would mean now, and a time that does
// not fit into nanoseconds is taken for a bad clock.
func nanos(t time.Time) int64 {
	if y := t.Year(); y < 1700 || y > 2200 || t.UnixNano() == 0 {
		return 1
	}
	return t.UnixNano()
}

func (g *grower) put(c change, info Info, content io.Reader) error {
	switch info.Mode.Type() {
	case 0:
		return g.file(c, info.Size, content)
	case fs.ModeDir:
		return g.dir(c)
	case fs.ModeSymlink:
		if err := checkTarget(info.Target); err != nil {
			return err
		}
		c.op, c.other = opLink, info.Target
	default:
		return fs.ErrInvalid
	}
	return g.make(c)
}

func (g *grower) dir(c change) error {
	switch {
	case c.path != "":
		c.op = opMkdir
		if err := g.make(c); err != nil {
			return err
		}
	case g.root:
		return fs.ErrExist
	default:
		g.root = true
	}
	c.op = opTouch
	g.dirs = append(g.dirs, now(c))
	return nil
}

func (g *grower) make(c change) error {
	return g.fs.commit(nil, func(t *tree) (change, error) {
		if err := t.vacant(c.path); err != nil {
			return change{}, err
		}
		return now(c), g.fs.limits.fits(t, 1, 0)
	})
}

func (g *grower) file(c change, size int64, content io.Reader) error {
	err := g.fs.put(content, size, func(t *tree) (change, *node, error) { return c, nil, t.vacant(c.path) })
	if err == nil {
		g.done += size
		if g.progress != nil {
			g.progress(g.done, max(g.done, g.total))
		}
	}
	return err
}

// vacant tells whether something new can be at a path, which is taken as it is.
func (t *tree) vacant(path string) error {
	at := names(path)
	if len(at) == 0 {
		return fs.ErrInvalid
	}
	dir, err := t.root.at(at[:len(at)-1])
	if err != nil {
		return err
	}
	switch _, err = dir.child(at[len(at)-1]); {
	case err == nil:
		return fs.ErrExist
	case missing(err):
		return nil
	}
	return err
}

// finish gives the directories their times.
func (g *grower) finish() error {
	for _, c := range g.dirs {
		if err := g.fs.commit(nil, func(*tree) (change, error) { return c, nil }); err != nil {
			return pathError("import", c.path, err)
		}
	}
	return nil
}

// materialize writes a tree to a new folder of the host. Nothing is left of it
// when it fails.
func materialize(ctx context.Context, dst string, t *tree, progress func(done, total int64)) (err error) {
	temp := filepath.Join(filepath.Dir(dst), partialName())
	if err := os.Mkdir(temp, 0o700); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temp))
		}
	}()
	root, err := os.OpenRoot(temp)
	if err != nil {
		return err
	}
	defer root.Close()
	m := materializer{ctx: ctx, progress: progress, total: t.root.bytes}
	if err := m.dir(root, "", t.root); err != nil {
		return err
	}
	return os.Rename(temp, dst)
}

type materializer struct {
	ctx         context.Context
	progress    func(done, total int64)
	done, total int64
}

// dir fills a directory, and gives it its mode and time at last: the mode may forbid
// writing.
func (m *materializer) dir(at *os.Root, name string, n *node) error {
	err := n.each(func(base string, c *node) error {
		if err := m.ctx.Err(); err != nil {
			return err
		}
		return pathError("write", join(name, base), m.entry(at, join(name, base), base, c))
	})
	if err != nil {
		return err
	}
	if err := at.Chmod(".", n.mode.Perm()); err != nil {
		return err
	}
	if n.modified == 0 {
		return nil
	}
	t := time.Unix(0, n.modified)
	return at.Chtimes(".", t, t)
}

func (m *materializer) entry(at *os.Root, name, base string, n *node) error {
	switch n.mode.Type() {
	case fs.ModeDir:
		if err := at.Mkdir(base, 0o700); err != nil {
			return err
		}
		below, err := at.OpenRoot(base)
		if err != nil {
			return err
		}
		defer below.Close()
		return m.dir(below, name, n)
	case fs.ModeSymlink:
		return at.Symlink(filepath.FromSlash(portable(name, n.target)), base)
	}
	return m.file(at, base, n)
}

func (m *materializer) file(at *os.Root, base string, n *node) error {
	h, err := at.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = copyContent(h, contentOf(&treeFile{info: n.info(base), parts: n.parts}, n.bytes), n.bytes)
	if err == nil {
		err = h.Chmod(n.mode.Perm())
	}
	if closed := h.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	t := time.Unix(0, n.modified)
	if err := at.Chtimes(base, t, t); err != nil && !errors.Is(err, syscall.EPERM) {
		return err
	}
	m.done += n.bytes
	if m.progress != nil {
		m.progress(m.done, m.total)
	}
	return nil
}

// portable makes the target of the link at name relative where it names the root
// of trees, which a folder of the host is not.
func portable(name, target string) string {
	inside, ok := below([]string{treeRoot}, target)
	if !ok {
		return target
	}
	up := strings.Repeat("../", strings.Count(name, "/"))
	return path.Join(".", up+strings.TrimLeft(inside, "/"))
}
