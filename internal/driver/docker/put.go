package docker

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path"

	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/driver"
)

var _ driver.Porter = (*instance)(nil)

// Put implements [driver.Porter]. Its directories are paths in the container.
func (i *instance) Put(ctx context.Context, dir, name string, r io.Reader) (string, error) {
	size, r, done, err := sized(r)
	if err != nil {
		return "", err
	}
	defer done()
	in, out := io.Pipe()
	go func() {
		w := tar.NewWriter(out)
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, Typeflag: tar.TypeReg})
		if err == nil {
			_, err = io.Copy(w, r)
		}
		out.CloseWithError(errors.Join(err, w.Close()))
	}()
	at := path.Join("/", dir)
	_, err = i.e.cli.CopyToContainer(ctx, i.rec.ref(), client.CopyToContainerOptions{DestinationPath: at, Content: in})
	in.CloseWithError(err)
	return path.Join(at, name), err
}

// sized is how much there is to read, which an archive says first.
func sized(r io.Reader) (size int64, from io.Reader, done func(), err error) {
	if f, ok := r.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			return info.Size(), io.LimitReader(f, info.Size()), func() {}, nil
		}
	}
	f, err := os.CreateTemp("", "tine-put-*")
	if err != nil {
		return 0, nil, nil, err
	}
	done = func() {
		f.Close()
		os.Remove(f.Name())
	}
	size, err = io.Copy(f, r)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		done()
		return 0, nil, nil, err
	}
	return size, f, done, nil
}
