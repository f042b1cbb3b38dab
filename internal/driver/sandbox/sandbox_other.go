//go:build !linux || !(amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"runtime"

	"github.com/tine-mcp/tine/internal/driver"
)

// Driver is there so that a config for Linux can be read; it starts nothing.
type Driver struct{ opts Options }

// New returns a driver that says why it does nothing.
func New(opts Options) *Driver {
	opts.fill()
	return &Driver{opts: opts}
}

var errSystem = errors.New("sandboxes need Linux on amd64 or arm64, and this is " + runtime.GOOS + " on " + runtime.GOARCH + "; run Tine there, or set driver: process")

// Find finds no program: there is none for this system.
func Find(string) (string, error) { return "", errSystem }

// Start implements driver.Driver.
func (d *Driver) Start(context.Context, driver.Spec) (driver.Instance, error) { return nil, errSystem }

// Adopt implements driver.Driver.
func (d *Driver) Adopt(context.Context, driver.Handle, *slog.Logger) (driver.Instance, error) {
	return nil, errSystem
}

// Close implements io.Closer.
func (d *Driver) Close() error { return nil }
