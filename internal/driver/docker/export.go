package docker

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/parcel"
)

// An export is a parcel with the files of each volume below v0/, v1/ and so on,
// and those of the root below root/. Owners are numbers of the container and
// stay; devices, sockets and extended attributes don't.
const (
	exportRoot    = "root"
	exportFormat  = "tine container state"
	exportVersion = 1
	exportPieces  = 256
)

var exportForm = parcel.Form{Name: "tine-docker", Format: exportFormat, Version: exportVersion, What: "a container's state"}

type exportHeader struct {
	Format  string   `json:"format"`
	Version int      `json:"version"`
	Root    bool     `json:"root,omitempty"`
	Image   bool     `json:"image,omitempty"` // the root is in it; else it is that of the config's image
	Paths   []string `json:"paths,omitempty"`
	Fresh   []bool   `json:"fresh,omitempty"` // volumes on which nothing was
}

// pieceName is the folder of a volume in an export.
func pieceName(n int) string { return fmt.Sprintf("v%d", n) }

// Export implements driver.Keeper.
func (d *Driver) Export(ctx context.Context, s driver.Snapshot, w io.Writer) error {
	err := d.CheckExport(ctx, s)
	if err != nil {
		return err
	}
	if err := d.export(ctx, s, w); err != nil {
		return fmt.Errorf("server %q: export its snapshot: %w", s.Server, err)
	}
	return nil
}

// CheckExport implements driver.Keeper. Links in a container lead nowhere
// but in it.
func (d *Driver) CheckExport(ctx context.Context, s driver.Snapshot) error {
	if s.Dir == "" {
		return nil
	}
	h, err := readHolding(s.Dir)
	if err == nil {
		err = d.snapshotHolds(ctx, s.Server, h)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("it is gone")
	}
	if err != nil {
		return fmt.Errorf("server %q: export its snapshot: %w", s.Server, err)
	}
	return nil
}

func (d *Driver) export(ctx context.Context, s driver.Snapshot, w io.Writer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var h holding
	if s.Dir != "" {
		var err error
		if h, err = readHolding(s.Dir); errors.Is(err, fs.ErrNotExist) {
			return errors.New("it is gone")
		} else if err != nil {
			return err
		}
	}
	head := exportHeader{Format: exportFormat, Version: exportVersion, Root: h.Root, Image: h.Root && (h.Image != "" || h.Files)}
	if h.Files {
		_, err := os.Lstat(filepath.Join(s.Dir, exportRoot+".tar"))
		head.Image = err == nil
	}
	for _, p := range h.Volumes {
		head.Paths, head.Fresh = append(head.Paths, p.Path), append(head.Fresh, p.Fresh)
	}
	out, err := exportForm.Write(ctx, w, head)
	if err != nil {
		return err
	}
	x := &exporter{out}
	if h.Files {
		err = x.files(s.Dir, head)
	} else if len(h.Volumes) > 0 || head.Image {
		err = d.exportEngine(ctx, x, s, h)
	}
	if err != nil {
		return err
	}
	return out.Close()
}

// exportEngine writes what an engine has.
func (d *Driver) exportEngine(ctx context.Context, x *exporter, s driver.Snapshot, h holding) error {
	e, err := d.engine(h.Host)
	if err != nil {
		return err
	}
	image := h.Base
	if h.Image != "" {
		image = h.Image
	}
	var mounts []mount.Mount
	for n, p := range h.Volumes {
		mounts = append(mounts, plainMount(p.Volume, placeFrom+pieceName(n)))
	}
	spec := driver.Spec{Server: s.Server}
	if len(mounts) > 0 {
		id, remove, err := e.helper(ctx, spec, image, mounts)
		if err != nil {
			return err
		}
		defer remove()
		for n, p := range h.Volumes {
			if p.Fresh {
				continue
			}
			err := e.walk(ctx, id, placeFrom+pieceName(n), func(h *tar.Header, r io.Reader) error { return x.entry(pieceName(n), h, r) })
			if err != nil {
				return err
			}
		}
	}
	if h.Image == "" {
		return nil
	}
	id, remove, err := e.helper(ctx, spec, image, nil)
	if err != nil {
		return err
	}
	defer remove()
	out, err := e.cli.ContainerExport(ctx, id, client.ContainerExportOptions{})
	if err != nil {
		return e.explain("read the container", err)
	}
	defer out.Close()
	return x.all(exportRoot, out)
}

type exporter struct{ out *parcel.Writer }

// entry writes a file below a folder.
func (x *exporter) entry(folder string, h *tar.Header, r io.Reader) error {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
	default:
		return nil
	}
	name := cleanName(h.Name)
	if name == "" && h.Typeflag != tar.TypeDir {
		return nil
	}
	out := plainHeader(h, folder+"/"+name)
	if h.Typeflag == tar.TypeLink {
		out.Linkname = folder + "/" + cleanName(h.Linkname)
	}
	if err := x.out.Entry(out); err != nil {
		return err
	}
	_, err := io.Copy(x.out, r)
	return err
}

// cleanName is a name of an archive without what says nothing.
func cleanName(name string) string {
	return strings.Trim(strings.TrimPrefix(name, "./"), "/")
}

// plainHeader has what is kept of an entry.
func plainHeader(h *tar.Header, name string) *tar.Header {
	out := &tar.Header{
		Typeflag: h.Typeflag, Name: name, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode & 0o7777,
		Uid: h.Uid, Gid: h.Gid, ModTime: h.ModTime, Format: tar.FormatPAX,
	}
	if h.Typeflag == tar.TypeDir {
		out.Name = strings.TrimSuffix(name, "/") + "/"
	}
	if h.Typeflag != tar.TypeReg {
		out.Size = 0
	}
	return out
}

// all writes what is in an archive below a folder.
func (x *exporter) all(folder string, r io.Reader) error {
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := x.entry(folder, h, in); err != nil {
			return err
		}
	}
}

// files writes a snapshot that no engine has.
func (x *exporter) files(dir string, head exportHeader) error {
	var names []string
	for n := range head.Paths {
		if !head.Fresh[n] {
			names = append(names, pieceName(n))
		}
	}
	if head.Image {
		names = append(names, exportRoot)
	}
	for _, name := range names {
		f, err := os.Open(filepath.Join(dir, name+".tar"))
		if err != nil {
			return err
		}
		err = x.all(name, f)
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
