package docker

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/driver"
)

// labelTemplate names, on an image, what its template was and what it was put
// into.
const labelTemplate = "tine.template"

// template puts the files of the template where they belong: on the volume that
// has the path, or into an image.
func (m *making) template(ctx context.Context, owner person, progress func(done, total int64)) error {
	src, err := filepath.EvalSymlinks(m.spec.Template)
	if err != nil {
		return err
	}
	at := options(m.spec).TemplatePath
	if at == "" && !m.Root {
		at = options(m.spec).State[0]
	}
	if at == "" {
		return fmt.Errorf("its place in the container is not set; set servers.%s.docker.template_path", m.spec.Server)
	}
	at = path.Clean(at)
	p := m.volumeOf(at)
	switch {
	case p == nil && m.Root:
		return m.templateImage(ctx, src, at, owner)
	case p == nil:
		return fmt.Errorf("the path %s is not in the state; add it to servers.%s.docker.state, or mend docker.template_path", at, m.spec.Server)
	}
	p.Fresh = false
	if dir, ok := m.e.hostPath(ctx, p.Volume); ok && at == path.Clean(p.Path) && isDir(src) {
		if _, err := cloneInto(ctx, dir, src, progress); err != nil {
			return err
		}
		return giveAll(dir, owner)
	}
	id, remove, err := m.e.helper(ctx, m.spec, m.Base, []mount.Mount{plainMount(p.Volume, p.Path)})
	if err != nil {
		return err
	}
	defer remove()
	rel, err := filepath.Rel(path.Clean(p.Path), at)
	if err != nil {
		return err
	}
	return m.e.put(ctx, id, p.Path, func(w *tar.Writer) error { return pack(ctx, w, src, filepath.ToSlash(rel), owner) })
}

func isDir(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.IsDir()
}

// volumeOf is the piece that a path lies on.
func (m *making) volumeOf(at string) *piece {
	var best *piece
	for n := range m.Volumes {
		p := &m.Volumes[n]
		dir := path.Clean(p.Path)
		if (at == dir || strings.HasPrefix(at, strings.TrimSuffix(dir, "/")+"/")) && (best == nil || len(p.Path) > len(best.Path)) {
			best = p
		}
	}
	return best
}

// giveAll sets the owner of a tree.
func giveAll(dir string, to person) error {
	return filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, to.uid, to.gid)
	})
}

// pack writes a file or a directory as an archive, below a path, with an owner. Times
// stay out of it where they would make two equal trees differ.
func pack(ctx context.Context, w *tar.Writer, src, at string, owner person) error {
	st, err := os.Stat(src)
	if err != nil {
		return err
	}
	for _, dir := range above(at) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, Uid: owner.uid, Gid: owner.gid}); err != nil {
			return err
		}
	}
	root, name := src, "."
	if !st.IsDir() {
		root, name = filepath.Dir(src), filepath.Base(src)
	}
	dir, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer dir.Close()
	if !st.IsDir() {
		return packOne(w, dir, name, at, owner, path.Base(at) == "." || strings.HasSuffix(at, "/"))
	}
	return fs.WalkDir(dir.FS(), name, func(name string, _ fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		return packOne(w, dir, name, at, owner, true)
	})
}

// above are the directories that lead to a path.
func above(at string) []string {
	var all []string
	for dir := path.Dir(path.Clean(at)); dir != "." && dir != "/"; dir = path.Dir(dir) {
		all = append(all, dir)
	}
	slices.Reverse(all)
	return all
}

// packOne writes one entry. into is whether at is the directory that has it.
func packOne(w *tar.Writer, dir *os.Root, name, at string, owner person, into bool) error {
	st, err := dir.Lstat(name)
	if err != nil {
		return err
	}
	h := &tar.Header{Name: at, Mode: int64(st.Mode().Perm()), ModTime: st.ModTime(), Uid: owner.uid, Gid: owner.gid, Format: tar.FormatPAX}
	if into {
		h.Name = path.Join(at, filepath.ToSlash(name))
	}
	switch {
	case st.IsDir():
		h.Typeflag = tar.TypeDir
		h.Name += "/"
		return w.WriteHeader(h)
	case st.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = dir.Readlink(name); err != nil {
			return err
		}
		return w.WriteHeader(h)
	case !st.Mode().IsRegular():
		return fmt.Errorf("%s is neither a file, a directory nor a link", name)
	}
	h.Typeflag, h.Size = tar.TypeReg, st.Size()
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	f, err := dir.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(w, io.LimitReader(f, st.Size()))
	if err == nil && n != st.Size() {
		err = fmt.Errorf("%s changed meanwhile", name)
	}
	return err
}

// templateImage commits the template into an image, unless there is one with the
// same files already, and uses it.
func (m *making) templateImage(ctx context.Context, src, at string, owner person) error {
	base, err := m.e.cli.ImageInspect(ctx, m.Base)
	if err != nil {
		return m.e.explain("look at the image", err)
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%s\n%d:%d\n", base.ID, at, owner.uid, owner.gid)
	out := tar.NewWriter(sum)
	if err := pack(ctx, out, src, strings.TrimPrefix(at, "/"), owner); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	name := hex.EncodeToString(sum.Sum(nil)[:16])
	leave, err := m.d.turns.enter(ctx, "template "+m.e.host+" "+name)
	if err != nil {
		return err
	}
	defer leave()
	list, err := m.e.cli.ImageList(ctx, client.ImageListOptions{Filters: m.d.ours().Add("label", labelTemplate+"="+name, labelRole+"="+roleTemplate)})
	if err != nil {
		return m.e.explain("look for the template's image", err)
	}
	for _, image := range list.Items {
		// Podman lists what has one of the labels, and not only what has all.
		if l := image.Labels; l[labelTemplate] != name || l[labelRole] != roleTemplate || l[labelGateway] != m.d.opts.Gateway {
			continue
		}
		// Its last user may be going in this moment.
		if err := m.tag(ctx, image.ID); err == nil {
			return nil
		}
	}
	id, remove, err := m.e.helper(ctx, m.spec, m.Base, nil)
	if err != nil {
		return err
	}
	defer remove()
	if err := m.e.put(ctx, id, "/", func(w *tar.Writer) error { return pack(ctx, w, src, strings.TrimPrefix(at, "/"), owner) }); err != nil {
		return err
	}
	labels := m.d.labels(driver.Spec{Server: m.spec.Server}, roleTemplate, "")
	labels[labelTemplate] = name
	return m.commitAs(ctx, id, labels, runConfig(base))
}
