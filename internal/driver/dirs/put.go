package dirs

import (
	"context"
	"errors"
	"io"
	"os"
)

// Put writes a file into a directory that a program works on, whole or not at all. The
// program may have put anything there, and no link of it is followed.
func Put(ctx context.Context, dir, name string, r io.Reader) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	part := name + ".part"
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, until{ctx, r})
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = root.Rename(part, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(part))
	}
	return nil
}

// until is a reader that ends with a context.
type until struct {
	ctx context.Context
	io.Reader
}

func (u until) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.Reader.Read(p)
}
