package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/driver/docker"
	_ "github.com/tine-mcp/tine/internal/driver/kinds"
	"github.com/tine-mcp/tine/internal/driver/process"
	"github.com/tine-mcp/tine/internal/driver/remote"
	"github.com/tine-mcp/tine/internal/driver/sandbox"
	"github.com/tine-mcp/tine/internal/driver/url"
	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/native/everything"
	"github.com/tine-mcp/tine/internal/native/fetch"
	"github.com/tine-mcp/tine/internal/native/files"
	"github.com/tine-mcp/tine/internal/native/memory"
	"github.com/tine-mcp/tine/internal/native/orchestrator"
	"github.com/tine-mcp/tine/internal/native/rlm"
	"github.com/tine-mcp/tine/internal/native/rollout"
	"github.com/tine-mcp/tine/internal/native/sqlite"
	"github.com/tine-mcp/tine/internal/native/timeserver"
	"github.com/tine-mcp/tine/internal/workspace"
)

// plugins are the drivers, the servers inside the binary, and the keepers of their
// states in one state folder.
type plugins struct {
	drivers    map[string]driver.Driver
	workspaces *workspace.Store
	close      func() error
}

// layerFiles is how many files of layers are open at once, of each kind: as many
// as a thousand busy sessions need, and no more than an eighth of what the
// system gives.
func layerFiles() int { return max(64, min(4096, openFiles()/8)) }

// pluginOptions are what drivers and the servers inside the binary work with.
type pluginOptions struct {
	State    string
	Gateway  string // who owns the state folder
	Sandbox  string // the program that makes sandboxes; empty for the one that is found
	MaxFrame int
	Sessions rollout.Sessions    // acts on sessions for servers that need that
	Agents   orchestrator.Agents // likewise on agents
	// Authorize adds the credentials of a server to requests; nil if its headers
	// are enough.
	Authorize func(server string) func(http.RoundTripper) http.RoundTripper
	// Network is called with the connections of servers with a list of domains; it
	// does not block.
	Network func(driver.Network)
	// Private are the files of the config, which no sandbox may see.
	Private func() []string
	// Readable are the files and folders that rlm_load of a server may read now.
	Readable func(server string) []string
	RLM      rlmOptions
	Log      *slog.Logger
}

// rlmOptions are what differs where tine rlm is the gateway.
type rlmOptions struct {
	Flags map[string]string // the flags that settings are set by
	Note  string            // what the client is told with the first result
	// Programs is the folder of copies of tine-sandbox, and Helper starts them; empty and
	// nil as for any gateway.
	Programs string
	Helper   *rlmHelper
	// Denied reports whether a file that was opened may not be read; nil for none.
	Denied func(*os.File) bool
	// Unfit hears of a memory that can't be used any more, which costs no call, and Anew
	// says whether there was one; nil where calls are told.
	Unfit func(server, why string) bool
	Anew  func() bool
	// Left says whether the client has left; nil where a gateway has many.
	Left func() bool
}

// self is this program, even if its file was replaced.
const self = "/proc/self/exe"

// newPlugins is the one list of drivers and of the servers inside the binary.
func newPlugins(o pluginOptions) (_ *plugins, err error) {
	p := &plugins{drivers: make(map[string]driver.Driver)}
	var open []io.Closer
	p.close = func() error {
		var all error
		for i := len(open) - 1; i >= 0; i-- {
			all = errors.Join(all, open[i].Close())
		}
		return all
	}
	defer func() {
		if err != nil {
			_ = p.close()
		}
	}()
	layers := func(name string) (*layer.Store, error) {
		s, err := layer.OpenStore(layer.Options{Dir: filepath.Join(o.State, "layers", name), MaxFiles: layerFiles(), Log: o.Log})
		if err == nil {
			open = append(open, s)
		}
		return s, err
	}
	inside, err := layers("builtin")
	if err != nil {
		return nil, err
	}
	trees, err := layers("workspace")
	if err != nil {
		return nil, err
	}
	p.workspaces = workspace.NewStore(trees, workspace.Options{Dir: filepath.Join(o.State, "scratch"), Log: o.Log})
	open = append(open, p.workspaces)
	private := func() []string {
		files := []string{o.State}
		if o.Private != nil {
			files = append(files, o.Private()...)
		}
		return files
	}
	within := builtin.New(builtin.Options{Kinds: kinds(o.Sessions, o.Agents, private, o.Readable, o.RLM), Layers: inside, Dir: filepath.Join(o.State, "templates")})
	away := remote.New(remote.Options{Dir: filepath.Join(o.State, "remote"), MaxFrame: o.MaxFrame, Authorize: o.Authorize, Log: o.Log})
	contained := docker.New(docker.Options{Gateway: o.Gateway, MaxFrame: o.MaxFrame, Dir: filepath.Join(o.State, "docker"), Log: o.Log})
	walled := sandbox.New(sandbox.Options{MaxFrame: o.MaxFrame, Dir: filepath.Join(o.State, "sandbox"), Binary: o.Sandbox, Hide: []string{o.State}, Private: o.Private, Network: o.Network, Programs: o.RLM.Programs, Start: o.RLM.Helper.starter(), Blind: o.RLM.Helper.blind(), Memory: o.RLM.Helper.memory(), MemoryFlag: o.RLM.Flags["memory"], Log: o.Log})
	programs := process.New(process.Options{MaxFrame: o.MaxFrame, Self: self, Place: filepath.Join(o.State, "workspace"), Fetched: filepath.Join(o.State, "fetched"), Log: o.Log})
	open = append(open, closer(within.Close), closer(away.Close), contained, walled, programs)
	for _, d := range []driver.Driver{programs, url.New(), within, away, contained, walled} {
		p.drivers[d.Info().Name] = d
	}
	return p, nil
}

// kinds are the servers inside the binary.
func kinds(sessions rollout.Sessions, agents orchestrator.Agents, private func() []string, readable func(server string) []string, kernel rlmOptions) map[string]builtin.Kind {
	plain := func(make func(map[string]any) (*mcp.Server, error)) builtin.Kind {
		return builtin.Kind{New: func(e builtin.Env) (*mcp.Server, io.Closer, error) {
			s, err := make(e.Settings)
			return s, nil, err
		}}
	}
	models := &rlm.Models{Open: kernel.Helper.openModel}
	return map[string]builtin.Kind{
		"time":       plain(timeserver.New),
		"fetch":      plain(fetch.New),
		"everything": plain(everything.New),
		"rollout":    plain(func(settings map[string]any) (*mcp.Server, error) { return rollout.New(settings, sessions) }),
		"orchestrator": plain(func(settings map[string]any) (*mcp.Server, error) {
			return orchestrator.New(settings, agents)
		}),
		"rlm": {Edition: rlm.Edition(), New: func(e builtin.Env) (*mcp.Server, io.Closer, error) {
			if e.Body != nil {
				if err := kernel.Helper.confine(); err != nil {
					return nil, nil, err
				}
			}
			return rlm.New(rlm.Env{Server: e.Server, Session: e.Session, Settings: e.Settings, Body: e.Body, Models: models, Private: private, Readable: readable, Denied: kernel.Denied, Flags: kernel.Flags, SaveAtEnd: kernel.Helper != nil, Note: kernel.Note, Anew: kernel.Anew, Left: kernel.Left, Log: e.Log})
		}},
		"files": {New: func(e builtin.Env) (*mcp.Server, io.Closer, error) {
			tree, settings, err := filesTree(e)
			if err != nil {
				return nil, nil, err
			}
			s, err := files.New(settings, tree)
			return s, nil, err
		}},
		"memory": {
			Remembers: true,
			New: func(e builtin.Env) (*mcp.Server, io.Closer, error) {
				h, err := layer.Open(e.Layers, e.State, memory.Machine())
				if err != nil {
					return nil, nil, err
				}
				s, err := memory.New(e.Settings, h)
				if err != nil {
					return nil, nil, errors.Join(err, h.Close())
				}
				return s, h, nil
			},
			Import: func(ctx context.Context, e builtin.Env, template string, progress func(done, total int64)) error {
				h, err := layer.Open(e.Layers, e.State, memory.Machine())
				if err != nil {
					return err
				}
				return errors.Join(memory.Import(ctx, e.Settings, h, template, progress), h.Close())
			},
			Read: func(_ context.Context, e builtin.Env, each func(driver.Item) error) error {
				h, err := layer.Open(e.Layers, e.State, memory.Machine())
				if err != nil {
					return err
				}
				return errors.Join(memory.Read(h.Value(), each), h.Close())
			},
		},
		"sqlite": {
			Remembers: true,
			New: func(e builtin.Env) (*mcp.Server, io.Closer, error) {
				h, err := layer.Open(e.Layers, e.State, sqlite.Machine())
				if err != nil {
					return nil, nil, err
				}
				s, end, err := sqlite.New(e.Settings, h, e.Workspace)
				if err != nil {
					return nil, nil, errors.Join(err, h.Close())
				}
				return s, both{end, h}, nil
			},
			Import: func(ctx context.Context, e builtin.Env, template string, progress func(done, total int64)) error {
				h, err := layer.Open(e.Layers, e.State, sqlite.Machine())
				if err != nil {
					return err
				}
				return errors.Join(sqlite.Import(ctx, h, template, progress), h.Close())
			},
			Read: func(ctx context.Context, e builtin.Env, each func(driver.Item) error) error {
				h, err := layer.Open(e.Layers, e.State, sqlite.Machine())
				if err != nil {
					return err
				}
				return errors.Join(sqlite.Read(ctx, h, each), h.Close())
			},
		},
	}
}

// builtinSettings say what is wrong with the settings of the servers inside the binary; those
// of rlm are read with the rest of its program.
func builtinSettings() map[string]func(settings map[string]any) error {
	by := func(make func(map[string]any) (*mcp.Server, error)) func(map[string]any) error {
		return func(settings map[string]any) error {
			_, err := make(settings)
			return err
		}
	}
	return map[string]func(map[string]any) error{
		"time":         by(timeserver.New),
		"fetch":        by(fetch.New),
		"everything":   by(everything.New),
		"rollout":      by(func(settings map[string]any) (*mcp.Server, error) { return rollout.New(settings, nil) }),
		"orchestrator": by(func(settings map[string]any) (*mcp.Server, error) { return orchestrator.New(settings, nil) }),
		"files":        by(func(settings map[string]any) (*mcp.Server, error) { return files.New(filesSettings(settings), nil) }),
		"memory":       memory.CheckSettings,
		"sqlite":       sqlite.CheckSettings,
	}
}

// filesSettings are those of the files server without its root.
func filesSettings(all map[string]any) map[string]any {
	if _, ok := all["root"].(string); !ok {
		return all
	}
	own := maps.Clone(all)
	delete(own, "root")
	return own
}

// filesTree is what the files server serves, a folder of the host that its settings name or
// the session's workspace, with the settings that are the server's own.
func filesTree(e builtin.Env) (workspace.FS, map[string]any, error) {
	if root, ok := e.Settings["root"].(string); ok {
		tree, err := workspace.Folder(root)
		return tree, filesSettings(e.Settings), err
	}
	if e.Workspace == nil {
		return nil, nil, errors.New("it has no workspace; set workspace: true at the top of the config, or settings.root to a folder")
	}
	return e.Workspace, e.Settings, nil
}

// closer is a function that closes.
type closer func()

// Close implements io.Closer.
func (c closer) Close() error {
	c()
	return nil
}

// both closes one after the other.
type both struct{ first, second io.Closer }

// Close implements io.Closer.
func (b both) Close() error { return errors.Join(b.first.Close(), b.second.Close()) }
