//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/egress"
	"github.com/tine-mcp/tine/internal/driver/lines"
	"github.com/tine-mcp/tine/internal/driver/sandbox/layout"
)

// Driver runs sandboxes. Make it with New.
type Driver struct {
	opts    Options
	buffers *sync.Pool
	rootful bool           // we are root
	beside  bool           // tests have several drivers of one folder
	bare    bool           // and none of the cgroups that there are
	egress  egress.Options // of every proxy; tests have other ways out
	helpers helpers
	roots   roots
	pool    pool
	stores  stores
	sights  sights
	sums    layout.Sums
	live    sync.Map // running *instance
	watch   watch
	kept    kept
	// troubles has the trouble that was logged last for each server: see instance.warn.
	troubles sync.Map
	unended  sync.Map // of folders: what could not be ended, and is tried again before the next start there

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup // what goes on in the background
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Sweeper = (*Driver)(nil)
	_ driver.Fetcher = (*Driver)(nil)
)

// New returns a driver. It makes nothing until something is started.
func New(opts Options) *Driver {
	opts.fill()
	if opts.Start == nil {
		opts.Start = Start
	}
	d := &Driver{opts: opts, buffers: lines.NewBuffers(), rootful: os.Geteuid() == 0}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.helpers.d, d.roots.d, d.pool.d, d.pool.wake, d.sights.work = d, d, d, make(chan struct{}, 1), &d.work
	d.sights.blind = d.opts.Blind
	return d
}

// Close ends what goes on in the background, and the helpers. Sandboxes go on.
func (d *Driver) Close() error {
	d.cancel()
	d.pool.close()
	d.stores.close()
	d.work.Wait()
	d.helpers.close()
	return nil
}

// The driver's folder.
func (d *Driver) runDir() string      { return filepath.Join(d.opts.Dir, "run") } // gVisor's own
func (d *Driver) rootsDir() string    { return filepath.Join(d.opts.Dir, "roots") }
func (d *Driver) mountsDir() string   { return filepath.Join(d.opts.Dir, "mounts") }
func (d *Driver) imagesDir() string   { return filepath.Join(d.opts.Dir, "images") }
func (d *Driver) packagesDir() string { return filepath.Join(d.opts.Dir, "packages") }

// prepare makes the driver's folder.
func (d *Driver) prepare() error {
	if !filepath.IsAbs(d.opts.Dir) {
		return fmt.Errorf("the folder of sandboxes is not a whole path: %q", d.opts.Dir)
	}
	for _, dir := range []string{d.opts.Dir, d.runDir(), d.rootsDir(), d.mountsDir(), d.pool.dir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make the folder of sandboxes: %w", err)
		}
	}
	return nil
}
