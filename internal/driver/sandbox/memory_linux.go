//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver/fifo"
	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// checkpoint writes the memory of an instance that is held into a folder that is
// there and empty, and says what it is of.
func (i *instance) checkpoint(ctx context.Context, dir string) (imageInfo, error) {
	if i.web != nil {
		i.web.cutAll()
	}
	req := i.request(control.OpCheckpoint)
	req.Image = dir
	if _, _, err := i.order(ctx, req); err != nil {
		if strings.Contains(err.Error(), unix.ENOSPC.Error()) { // it comes from another process
			err = fmt.Errorf("%w; make room where %s is", err, i.d.opts.Dir)
		}
		return imageInfo{}, fmt.Errorf("take down its memory: %w", err)
	}
	unread, err := unread(filepath.Join(i.h.Dir, fifo.In))
	if err != nil {
		return imageInfo{}, fmt.Errorf("take down what it has not read: %w", err)
	}
	info := imageInfo{ID: rand.Text(), Runsc: i.rec.Runsc, GVisor: i.help.gvisor, Arch: runtime.GOARCH, CPU: cpuFeatures(), Base: i.rec.Base, Program: i.rec.Program, Needs: i.rec.Needs, Unread: unread, Torn: !i.conn.Whole()}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return imageInfo{}, err
	}
	for _, e := range entries {
		if f, err := e.Info(); err == nil {
			info.Size += f.Size()
		}
	}
	return info, nil
}

// unread is what waits in a pipe to be read, which stays there.
func unread(path string) ([]byte, error) {
	from, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	n, err := unix.IoctlGetInt(int(from.Fd()), unix.TIOCINQ)
	if err != nil || n == 0 {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	defer w.Close()
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, max(n, 64<<10)); err != nil {
		return nil, err
	}
	got, err := unix.Tee(int(from.Fd()), int(w.Fd()), n, unix.SPLICE_F_NONBLOCK)
	if err != nil {
		return nil, err
	}
	if int(got) != n {
		return nil, fmt.Errorf("%d of %d bytes", got, n)
	}
	w.Close()
	return io.ReadAll(r)
}

// feed gives an instance the unread input of the one that it is a copy of.
func (i *instance) feed(b []byte) error {
	for len(b) > 0 {
		n, err := waking{i.pipe, &i.park}.WriteSome(b, false)
		if err != nil {
			return fmt.Errorf("give it what it had not read: %w", err)
		}
		b = b[n:]
	}
	return nil
}
