//go:build linux || darwin

package process

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/dirs"
	"github.com/tine-mcp/tine/internal/driver/family"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/packages"
)

var _ driver.Fetcher = (*Driver)(nil)

// fetching is what has npx, uvx and pipx fetch before they are started.
type fetching struct {
	mu     sync.Mutex
	caches *packages.Caches
	token  string // of the processes that fetch, the same for every gateway of the folder
	closed bool
}

// The file with the token, and how long one is.
const (
	tokenName   = "token"
	tokenLength = 26
)

func (d *Driver) fetching() (*fetching, error) {
	f := &d.fetches
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return nil, errors.New("the gateway is stopping")
	case f.caches != nil:
		return f, nil
	}
	caches, err := packages.OpenCaches(d.opts.Fetched, d.opts.Log)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(d.opts.Fetched, tokenName)
	token, err := readToken(name)
	if err != nil {
		return nil, err
	}
	if token == "" {
		token = rand.Text()
		if err := folder.WriteSynced(name, []byte(token)); err != nil {
			return nil, err
		}
	}
	f.caches, f.token = caches, token
	return f, nil
}

// readToken returns the empty string where there is none.
func readToken(name string) (string, error) {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(b) != tokenLength {
		return "", nil
	}
	return string(b), err
}

// Fetch implements driver.Fetcher: npx, uvx and pipx are run without the program
// that they would start.
func (d *Driver) Fetch(ctx context.Context, spec driver.Spec, most time.Duration) error {
	caches, cmd, err := d.tool(spec)
	if err != nil || caches == nil {
		return err
	}
	return caches.Fetch(ctx, cmd, most)
}

// Fetching implements driver.Fetcher.
func (d *Driver) Fetching(spec driver.Spec) *api.Fetch {
	caches, cmd, err := d.tool(spec)
	if err != nil || caches == nil {
		return nil
	}
	return caches.Fetching(cmd)
}

// Refetch implements driver.Fetcher.
func (d *Driver) Refetch(spec driver.Spec) {
	if caches, cmd, err := d.tool(spec); err == nil && caches != nil {
		caches.Refetch(cmd)
	}
}

// tool is the command of a spec that fetches; its caches are nil where it does not.
func (d *Driver) tool(spec driver.Spec) (*packages.Caches, packages.Command, error) {
	if d.opts.Fetched == "" || !packages.Fetches(spec.Command, spec.Args) {
		return nil, packages.Command{}, nil
	}
	f, err := d.fetching()
	if err != nil {
		return nil, packages.Command{}, err
	}
	cmd, ok := d.toolOf(spec, f.token)
	if !ok {
		return nil, cmd, nil
	}
	return f.caches, cmd, nil
}

// toolOf is the command of a spec without what depends on the session: where that is
// something that its tool needs to know, it reports false.
func (d *Driver) toolOf(spec driver.Spec, token string) (cmd packages.Command, ok bool) {
	own := make(map[string]string, len(spec.Env))
	for name, value := range spec.Env {
		if !dirs.Placed(value) {
			own[name] = value
		} else if packages.ToolVar(name) {
			return cmd, false
		}
	}
	spec.Env = own
	if dirs.Placed(spec.Cwd) || spec.Cwd == "" && spec.WorkspacePath != "" {
		spec.Cwd = d.opts.Fetched
	}
	env := family.NewEnvironment(d.opts.Environ, spec.Env, spec.Cwd, token)
	path, err := lookup(spec, env, nil)
	if err != nil {
		return cmd, false // the start says why
	}
	return packages.Command{Path: path, Args: spec.Args, Env: env.List(), Dir: spec.Cwd}, true
}

// Close ends the running fetches. Instances go on.
func (d *Driver) Close() error {
	f := &d.fetches
	f.mu.Lock()
	f.closed = true
	caches := f.caches
	f.mu.Unlock()
	if caches != nil {
		caches.Close()
	}
	return nil
}

// sweepFetches ends what is left of the fetches of a gateway that was killed.
func (d *Driver) sweepFetches() error {
	if d.opts.Fetched == "" {
		return nil
	}
	token, err := readToken(filepath.Join(d.opts.Fetched, tokenName))
	if err != nil || token == "" {
		return err
	}
	return d.census.End(family.Family{Token: token})
}
