package docker

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/workspace"
)

var _ driver.Filer = (*instance)(nil)

// PutFiles implements [driver.Filer]. The engine writes them, into a directory that is
// there, and as the server's user's.
func (i *instance) PutFiles(ctx context.Context, spec driver.Spec, at string, r io.Reader, l workspace.Limits) (done workspace.Copied, err error) {
	owner, err := i.e.owner(ctx, spec)
	if err != nil {
		return done, err
	}
	at = path.Join("/", at)
	err = i.e.put(ctx, i.rec.ref(), at, func(w *tar.Writer) error {
		in := tar.NewReader(r)
		for {
			h, err := in.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("read the archive: %w", err)
			}
			if h, err = workspace.CheckEntry(h, l, &done); err != nil {
				return err
			}
			if h == nil {
				continue
			}
			h.Uid, h.Gid = owner.uid, owner.gid
			if err := w.WriteHeader(h); err != nil {
				return err
			}
			if _, err := io.Copy(w, in); err != nil {
				return err
			}
		}
	})
	if gone(err) {
		return done, &fs.PathError{Op: "copy", Path: at, Err: fmt.Errorf("there is no such directory in the container: %w", fs.ErrNotExist)}
	}
	return done, err
}

// GetFiles implements [driver.Filer].
func (i *instance) GetFiles(ctx context.Context, spec driver.Spec, at string, w io.Writer, l workspace.Limits) (done workspace.Copied, err error) {
	at = path.Join("/", at)
	res, err := i.e.cli.CopyFromContainer(ctx, i.rec.ref(), client.CopyFromContainerOptions{SourcePath: at})
	if gone(err) {
		return done, &fs.PathError{Op: "copy", Path: at, Err: fs.ErrNotExist}
	}
	if err != nil {
		return done, i.e.explain("read the files of a container", err)
	}
	defer res.Content.Close()
	in, out := tar.NewReader(res.Content), tar.NewWriter(w)
	base := path.Base(at)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return done, out.Close()
		}
		if err != nil {
			return done, i.e.explain("read the files of a container", err)
		}
		if res.Stat.Mode.IsDir() { // Docker puts its name before everything in it, and Podman does not
			name := strings.Trim(strings.TrimPrefix(h.Name, "./"), "/")
			if rest, ok := strings.CutPrefix(name+"/", base+"/"); ok {
				h.Name = rest
			}
			if left, err := done.LeaveOut(h, l); err != nil {
				return done, err
			} else if left {
				continue
			}
		}
		if h, err = workspace.CheckEntry(h, l, &done); err != nil {
			return done, err
		}
		if h == nil {
			h = workspace.RootEntry(res.Stat.Mode)
		}
		if err := out.WriteHeader(h); err != nil {
			return done, err
		}
		if _, err := io.Copy(out, in); err != nil {
			return done, err
		}
	}
}
