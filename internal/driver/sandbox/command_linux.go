//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/image"
	"github.com/tine-mcp/tine/internal/driver/packages"
	"github.com/tine-mcp/tine/internal/driver/sandbox/layout"
)

// command is a program that was found, with all that it needs.
type command struct {
	path  string // a whole one
	args  []string
	env   map[string]string
	first []string          // folders in front of PATH
	reads []string          // what it must see beside what is there
	own   string            // the folder of its packages, in which it is the owner
	moves map[string]string // where folders are outside, by where it sees them

	mode  layout.Mode
	dir   string // of a root of its own
	image string // the digest of the image that was unpacked there
}

// stores are the packages and images of the driver, opened when they are needed.
type stores struct {
	mu       sync.Mutex
	packages *packages.Store
	images   *image.Store
}

// close ends the running fetches.
func (s *stores) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.packages != nil {
		s.packages.Close()
	}
}

// packages are the fetched packages.
func (d *Driver) packages() (*packages.Store, error) {
	d.stores.mu.Lock()
	defer d.stores.mu.Unlock()
	if d.stores.packages == nil {
		s, err := packages.Open(d.packagesDir(), packages.Options{
			Environ: func() []string { return d.opts.Environ },
			Log:     d.opts.Log,
		})
		if err != nil {
			return nil, err
		}
		d.stores.packages = s
	}
	return d.stores.packages, nil
}

// sweepStores removes what was being fetched or unpacked when a gateway was
// killed.
func (d *Driver) sweepStores() {
	if _, err := os.Stat(d.packagesDir()); err == nil {
		s, err := d.packages()
		if err == nil {
			err = s.Sweep()
		}
		if err != nil {
			d.opts.Log.Warn("what was left of packages is not removed", "error", err)
		}
	}
	if _, err := os.Stat(d.imagesDir()); err == nil {
		if err := d.images().Sweep(); err != nil {
			d.opts.Log.Warn("what was left of images is not removed", "error", err)
		}
	}
}

// images are the roots that were unpacked.
func (d *Driver) images() *image.Store {
	d.stores.mu.Lock()
	defer d.stores.mu.Unlock()
	if d.stores.images == nil {
		d.stores.images = &image.Store{Dir: d.imagesDir(), Log: d.opts.Log, Progress: func(line string) { d.opts.Log.Info(line) }}
	}
	return d.stores.images
}

// resolve finds the program of a spec.
func (d *Driver) resolve(ctx context.Context, spec driver.Spec) (*command, error) {
	c := &command{}
	var err error
	switch root := options(spec).Root; root {
	case "", RootAllow:
		c.mode = layout.Allow
	case RootHost:
		c.mode = layout.Host
	default:
		return d.resolveRoot(ctx, spec, root)
	}
	wanted, err := wanted(spec)
	if err != nil {
		return nil, err
	}
	if wanted != nil {
		return d.fetched(ctx, spec, *wanted)
	}
	name := spec.Command
	if strings.ContainsRune(name, filepath.Separator) && !filepath.IsAbs(name) && spec.Cwd != "" {
		name = filepath.Join(spec.Cwd, name)
	}
	environ := d.opts.Environ
	if path, ok := spec.Env["PATH"]; ok {
		environ = append(slices.Clip(environ), "PATH="+path)
	}
	if c.path, c.reads, err = layout.Resolve(name, environ); err != nil {
		return nil, fmt.Errorf("%w; mend servers.%s.command", err, spec.Server)
	}
	c.args = append([]string{c.path}, spec.Args...)
	return c, nil
}

// wanted are the packages that a program of the host needs; nil for none.
func wanted(spec driver.Spec) (*packages.Wanted, error) {
	if root := options(spec).Root; root != "" && root != RootAllow && root != RootHost {
		return nil, nil
	}
	w, ok, err := packages.Parse(spec.Command, spec.Args)
	if err != nil {
		return nil, fmt.Errorf("%w; mend servers.%s.args", err, spec.Server)
	}
	if !ok {
		return nil, nil
	}
	w.Env = spec.Env
	return w, nil
}

// Fetch implements driver.Fetcher.
func (d *Driver) Fetch(ctx context.Context, spec driver.Spec, most time.Duration) error {
	w, err := wanted(spec)
	if err != nil || w == nil {
		return err
	}
	if _, err := d.helpers.ours(); err != nil { // else reported only after the packages are fetched
		return err
	}
	store, err := d.packages()
	if err == nil {
		_, err = store.Get(ctx, *w, most)
	}
	return err
}

// Fetching implements driver.Fetcher.
func (d *Driver) Fetching(spec driver.Spec) *api.Fetch {
	w, err := wanted(spec)
	if err != nil || w == nil {
		return nil
	}
	store, err := d.packages()
	if err != nil {
		return nil
	}
	return store.Fetching(*w)
}

// Refetch implements driver.Fetcher. What a start finds is whole.
func (d *Driver) Refetch(driver.Spec) {}

// fetched finds the packages of a program.
func (d *Driver) fetched(ctx context.Context, spec driver.Spec, w packages.Wanted) (*command, error) {
	store, err := d.packages()
	if err != nil {
		return nil, err
	}
	found, err := store.Get(ctx, w, 0)
	if err != nil {
		return nil, err
	}
	return &command{
		mode: layoutMode(options(spec).Root), path: found.Command, args: append([]string{found.Command}, found.Args...),
		env: found.Env, first: found.Path, reads: append(slices.Clip(found.Reads), found.At), own: found.Dir, moves: found.Moves,
	}, nil
}

func layoutMode(root string) layout.Mode {
	if root == RootHost {
		return layout.Host
	}
	return layout.Allow
}

// resolveRoot finds a program in a root of its own: a directory, or the archive of
// an image, which brings variables of its own.
func (d *Driver) resolveRoot(ctx context.Context, spec driver.Spec, root string) (*command, error) {
	info, err := os.Stat(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("its root %q does not exist; make it, or mend servers.%s.sandbox.root", root, spec.Server)
	}
	if err != nil {
		return nil, fmt.Errorf("its root: %w; mend servers.%s.sandbox.root", err, spec.Server)
	}
	c := &command{mode: layout.Dir, dir: root}
	line := append([]string{spec.Command}, spec.Args...)
	if !info.IsDir() {
		img, err := d.images().Get(ctx, root)
		if err != nil {
			return nil, fmt.Errorf("its root: %w", err)
		}
		c.dir, c.image, c.own = img.Dir, img.Digest, img.Dir
		c.env = make(map[string]string)
		for _, kv := range img.Config.Env {
			if name, value, ok := strings.Cut(kv, "="); ok {
				c.env[name] = value
			}
		}
	}
	if line[0] == "" {
		return nil, errors.New("no command is given")
	}
	path := c.env["PATH"]
	if path == "" {
		path = insidePath
	}
	c.path = line[0]
	if !filepath.IsAbs(c.path) {
		if c.path, err = layout.Find(c.dir, c.path, path); err != nil {
			return nil, fmt.Errorf("%w; mend servers.%s.command", err, spec.Server)
		}
	}
	c.args = append([]string{c.path}, line[1:]...)
	return c, nil
}
