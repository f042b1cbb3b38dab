//go:build linux && (amd64 || arm64)

package sandbox

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/workspace"
)

var (
	_ driver.Filer      = (*instance)(nil)
	_ driver.StateFiles = (*Driver)(nil)
)

// StateDir implements [driver.StateFiles].
func (d *Driver) StateDir(state, name string) string { return dirsOf(state, name) }

// What a sandbox has of its own is in gVisor's memory, which no one but a program inside
// can write to. So its files are copied by tar, as a command. Its declared directories are
// the host's, and are copied from outside.

// PutFiles implements [driver.Filer].
func (i *instance) PutFiles(ctx context.Context, spec driver.Spec, at string, r io.Reader, l workspace.Limits) (workspace.Copied, error) {
	if dir, ok := ofState(at); ok {
		return i.folders(spec).Put(ctx, dir, r, l)
	}
	checked := &checkedArchive{limits: l}
	in, out := io.Pipe()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		out.CloseWithError(checked.copy(out, r))
	}()
	// Options that the tars of busybox and GNU both have.
	script := `mkdir -p -- "$1" && exec tar -x -f - -C "$1"`
	err := i.tar(ctx, spec, script, at, in, nil)
	in.Close()
	<-copied
	if checked.err != nil {
		err = checked.err
	}
	return checked.done, err
}

// GetFiles implements [driver.Filer].
func (i *instance) GetFiles(ctx context.Context, spec driver.Spec, at string, w io.Writer, l workspace.Limits) (workspace.Copied, error) {
	if dir, ok := ofState(at); ok {
		return i.folders(spec).Get(ctx, dir, w, l)
	}
	// A directory is packed from inside, all else by its last element.
	script := `if [ -d "$1" ]; then exec tar -c -f - -C "$1" .; fi
if [ ! -e "$1" ] && [ ! -L "$1" ]; then echo "no such file" >&2; exit 44; fi
d=${1%/*}
exec tar -c -f - -C "${d:-/}" -- "${1##*/}"`
	checked := &checkedArchive{limits: l, out: true}
	in, out := io.Pipe()
	copied := make(chan error, 1)
	go func() {
		err := checked.copy(w, in)
		in.CloseWithError(err) // or io.ErrClosedPipe
		copied <- err
	}()
	err := i.tar(ctx, spec, script, at, nil, out)
	out.CloseWithError(err)
	if e := <-copied; err == nil || checked.err != nil {
		err = e
	}
	return checked.done, err
}

// Statuses of the script: for a path at which nothing is, and a shell's own for a program that
// can't be run or is not there.
const (
	errNoFile   = 44
	errNotRun   = 126
	errNotFound = 127
)

func (i *instance) tar(ctx context.Context, spec driver.Spec, script, at string, in io.Reader, out io.Writer) error {
	var said bytes.Buffer
	exit, err := i.Exec(ctx, spec, driver.Command{
		Argv: []string{"/bin/sh", "-c", script, "sh", path.Join("/", at)}, Stdin: in, Stdout: out, Stderr: &limitedBuffer{b: &said},
	})
	text := strings.TrimSpace(said.String())
	switch {
	case errors.Is(err, driver.ErrNotFound) || err == nil && exit.Code == 127:
		return driver.Final(errors.New("files of a sandbox are copied by its sh and tar, and it lacks them; declare a directory in state and copy to /state/NAME, or use the workspace"))
	case err != nil:
		return err
	case exit.Code == errNoFile:
		return &fs.PathError{Op: "copy", Path: at, Err: fs.ErrNotExist}
	case exit.Code == 1 && onlyChanged(text):
	case exit.Code == errNotRun || exit.Code == errNotFound || exit.Signal != "":
		return fmt.Errorf("%w: tar in the sandbox failed: %s", driver.ErrCommand, text)
	case exit.Code != 0: // of the files that are there, such as one that its program may not read
		return &fs.PathError{Op: "copy", Path: at, Err: fmt.Errorf("tar in the sandbox failed: %s", text)}
	}
	return nil
}

// onlyChanged reports whether all that GNU tar complains of is files that others write to.
func onlyChanged(text string) bool {
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(strings.TrimSpace(line), "file changed as we read it") {
			return false
		}
	}
	return text != ""
}

// limitedBuffer keeps the beginning of what is written.
type limitedBuffer struct{ b *bytes.Buffer }

func (l *limitedBuffer) Write(p []byte) (int, error) {
	if room := 2<<10 - l.b.Len(); room > 0 {
		l.b.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// ofState is the part of a path that is in the declared directories.
func ofState(at string) (string, bool) {
	rest, ok := strings.CutPrefix(path.Join("/", at), insideState+"/")
	return rest, ok
}

func (i *instance) folders(spec driver.Spec) driver.Folders {
	return driver.Folders{Server: spec.Server, Dirs: spec.Dirs, At: func(name string) string { return i.d.StateDir(spec.State, name) }}
}

// checkedArchive passes an archive on, entry for entry: no more than the limits allow, and
// nothing but files, directories and links with names that stay inside.
type checkedArchive struct {
	limits workspace.Limits
	out    bool // it comes out of the sandbox: what a directory has else is left out
	done   workspace.Copied
	err    error // what is wrong with it
}

func (c *checkedArchive) copy(w io.Writer, r io.Reader) error {
	in, out := tar.NewReader(r), tar.NewWriter(w)
	dir := false
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			if c.out { // tar writes more than the end that it is read to
				if _, err := io.Copy(io.Discard, r); err != nil {
					return err
				}
			}
			return out.Close()
		}
		if err != nil {
			return err
		}
		if c.out && dir {
			left, err := c.done.LeaveOut(h, c.limits)
			if c.err = err; err != nil {
				return err
			}
			if left {
				continue
			}
		}
		if h, err = workspace.CheckEntry(h, c.limits, &c.done); err != nil {
			c.err = err
			return err
		}
		if h == nil {
			h, dir = workspace.RootEntry(0o755), true
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
	}
}
