//go:build linux && (amd64 || arm64)

package sandbox

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/dirs"
	"github.com/tine-mcp/tine/internal/driver/parcel"
)

// An export is a parcel with the files of the memory below image/ and the directories
// below dirs/. What the server said in its handshake, and its unread input, are too
// large for the head and entries of their own.
const (
	exportFormat  = "tine sandbox state"
	exportVersion = 1
	exportHello   = "hello"
	exportUnread  = "unread"
)

var exportForm = parcel.Form{Name: "tine-sandbox", Format: exportFormat, Version: exportVersion, What: "a sandbox's state"}

type exportHeader struct {
	Format  string     `json:"format"`
	Version int        `json:"version"`
	Image   *imageInfo `json:"image,omitempty"`
	Dirs    dirs.Set   `json:"dirs,omitempty"`
}

// Export implements driver.Keeper.
func (d *Driver) Export(ctx context.Context, s driver.Snapshot, w io.Writer) error {
	if err := export(ctx, s, w); err != nil {
		return fmt.Errorf("server %q: export its snapshot: %w", s.Server, err)
	}
	return nil
}

// CheckExport implements driver.Keeper.
func (d *Driver) CheckExport(ctx context.Context, s driver.Snapshot) error {
	r, err := thaw(s)
	if err == nil {
		err = dirs.CheckExport(ctx, r.Dirs, dirsOf(s.Dir))
	}
	if err != nil {
		return fmt.Errorf("server %q: %w", s.Server, err)
	}
	return nil
}

func export(ctx context.Context, s driver.Snapshot, w io.Writer) error {
	r, err := thaw(s)
	if err != nil {
		return err
	}
	head := exportHeader{Format: exportFormat, Version: exportVersion, Dirs: r.Dirs}
	if r.Image != nil {
		if err := r.Image.check(imageOf(s.Dir)); err != nil {
			return err
		}
		image := *r.Image
		image.Unread, image.Needs = nil, nil
		head.Image = &image
	}
	out, err := exportForm.Write(ctx, w, head)
	if err != nil {
		return err
	}
	if r.Image != nil {
		if err := exportImage(out, r, imageOf(s.Dir)); err != nil {
			return err
		}
	}
	if err := dirs.Export(out, dirsName, r.Dirs, dirsOf(s.Dir)); err != nil {
		return err
	}
	return out.Close()
}

func exportImage(out *parcel.Writer, r stateRecord, dir string) error {
	for _, text := range []struct {
		name    string
		content []byte
	}{{exportHello, r.Hello}, {exportUnread, r.Image.Unread}} {
		if len(text.content) == 0 {
			continue
		}
		if err := out.Entry(exportEntry(text.name, int64(len(text.content)))); err != nil {
			return err
		}
		if _, err := out.Write(text.content); err != nil {
			return err
		}
	}
	for _, name := range imageFiles {
		f, err := os.Open(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // the sizes say that all is there
		}
		if err != nil {
			return err
		}
		err = exportFile(out, imageName+"/"+name, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

func exportFile(out *parcel.Writer, as string, f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if err := out.Entry(exportEntry(as, st.Size())); err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(f, st.Size()))
	if err == nil && n != st.Size() {
		err = fmt.Errorf("%s changed meanwhile", as)
	}
	return err
}

func exportEntry(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
}
