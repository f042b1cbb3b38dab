package packages

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/folder"
)

// Caches has npx, uvx and pipx fetch packages into their own caches, before they
// are started with the same words and find them there. So everything about a package
// stays as it is without Tine: which version it is, what runs while it is installed,
// where it lies.
//
// A note in a folder says that a package was fetched, and is good for a day: a name
// without a version means the newest, and a start would fetch that by itself.
type Caches struct {
	dir     string
	runner  Runner
	log     *slog.Logger
	fetches *fetches[struct{}] // by key
}

const noteLasts = 24 * time.Hour

// Command is how a program is started.
type Command struct {
	Path string
	Args []string
	Env  []string // all of it
	Dir  string
}

// OpenCaches uses a folder for its notes, which it makes where it is missing. The caller
// owns the folder.
func OpenCaches(dir string, log *slog.Logger) (*Caches, error) {
	c := &Caches{dir: dir, runner: Host{}, log: log, fetches: newFetches[struct{}]()}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the folder for notes on packages: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open the folder for notes on packages: %w", err)
	}
	for _, e := range entries {
		if st, err := e.Info(); err == nil && strings.Contains(e.Name(), noteEnd) && time.Since(st.ModTime()) > noteLasts {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	return c, writeShell(c.shell())
}

const (
	noteEnd  = ".fetched"
	goingEnd = ".going"
)

// shell is what npm runs scripts with while it fetches: those of packages that are
// installed are run, the program that npx is about to start is not.
func (c *Caches) shell() string { return filepath.Join(c.dir, "shell") }

const shellText = `#!/bin/sh
[ "$npm_lifecycle_event" = npx ] && exit 0
unset npm_config_script_shell
exec sh "$@"
`

func writeShell(name string) error {
	if b, err := os.ReadFile(name); err == nil && string(b) == shellText {
		return nil
	}
	err := folder.WriteSynced(name+".new", []byte(shellText))
	if err == nil {
		err = os.Chmod(name+".new", 0o700)
	}
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		return fmt.Errorf("write the shell for npm: %w", err)
	}
	return nil
}

// Fetches reports whether a command is one of a tool that is asked to fetch.
func Fetches(command string, args []string) bool {
	_, ok, err := parse(command, args)
	return ok && err == nil
}

// Close ends the running fetches. None begins after it.
func (c *Caches) Close() { c.fetches.group.Close() }

// Fetch has the tool of a command fetch its packages, where it is a tool that fetches
// and has not done so lately. Several that want the same wait for one fetch, which goes
// on when they leave, for as long as most.
func (c *Caches) Fetch(ctx context.Context, cmd Command, most time.Duration) error {
	f, ok := c.plan(cmd)
	if !ok || f.noted() {
		return nil
	}
	_, err := c.fetches.do(ctx, f.key, mask(f.w.Package), most, func(ctx context.Context, p *progress) (none struct{}, err error) {
		if f.noted() {
			return none, nil
		}
		return none, f.run(ctx, p)
	})
	return err
}

// Fetching says how far the fetch for a command is; nil where none is running.
func (c *Caches) Fetching(cmd Command) *api.Fetch {
	if f, ok := c.plan(cmd); ok {
		return c.fetches.of(f.key)
	}
	return nil
}

// Refetch has the next Fetch for a command ask its tool again.
func (c *Caches) Refetch(cmd Command) {
	if f, ok := c.plan(cmd); ok {
		os.Remove(f.note())
	}
}

// caching is what has a tool fetch the packages of a command and run nothing of them.
type caching struct {
	c    *Caches
	w    *Wanted
	key  string
	step Step
	vars map[string]string
}

// plan reports false for a command that fetches nothing, or in a way that is not
// understood: it is started as it is.
func (c *Caches) plan(cmd Command) (*caching, bool) {
	w, ok, err := parse(cmd.Path, cmd.Args)
	if !ok || err != nil {
		return nil, false
	}
	w.AllowScripts = true // as the tool does
	if w.check() != nil {
		return nil, false
	}
	f := &caching{c: c, w: w, step: Step{Command: cmd.Path, Dir: cmd.Dir}, vars: make(map[string]string)}
	for _, kv := range cmd.Env {
		if name, value, ok := strings.Cut(kv, "="); ok {
			f.vars[name] = value
		}
	}
	named := len(cmd.Args) - len(w.Args) // of those before the program's own
	if w.Kind == NPM {
		f.step.Args = cmd.Args
		if tool(cmd.Path) == "npx" { // npm exec has options behind them too
			f.step.Args = cmd.Args[:named]
		}
		if slices.ContainsFunc(f.step.Args, ownShell) || f.get("npm_config_script_shell") != "" {
			return nil, false
		}
	} else {
		options := slices.Clone(cmd.Args[:named-1])
		if n := len(options); n > 0 && options[n-1] == "--" {
			options = options[:n-1]
		}
		if w.Bin == "" {
			from := "--from"
			if tool(cmd.Path) == "pipx" {
				from = "--spec"
			}
			options = append(options, from, cmd.Args[named-1])
		}
		f.step.Args = append(options, "python", "-I", "-S", "-c", "pass")
	}
	if f.step.Dir == "" {
		f.step.Dir, _ = os.Getwd()
	}
	var place []string
	for name, value := range f.vars {
		if ToolVar(name) {
			place = append(place, name+"="+value)
		}
	}
	slices.Sort(place)
	b, err := json.Marshal([]any{f.step.Command, f.step.Args, f.step.Dir, place})
	if err != nil {
		return nil, false
	}
	sum := sha256.Sum256(b)
	f.key = hex.EncodeToString(sum[:10])
	if w.Kind == NPM {
		f.vars["npm_config_script_shell"] = c.shell()
	}
	f.step.Env = environ(f.vars)
	return f, true
}

func ownShell(arg string) bool {
	return strings.HasPrefix(arg, "--script-shell") || strings.HasPrefix(arg, "--shell")
}

// ToolVar reports whether a variable says something to npx, uvx or pipx.
func ToolVar(name string) bool {
	name = strings.ToUpper(name)
	return name == "HOME" || name == "PATH" ||
		slices.ContainsFunc([]string{"NPM_CONFIG_", "UV_", "PIP_", "PIPX_", "XDG_"}, func(p string) bool { return strings.HasPrefix(name, p) })
}

// get returns a variable, whose name tools of npm take in any case.
func (f *caching) get(name string) string {
	for n, value := range f.vars {
		if strings.EqualFold(n, name) {
			return value
		}
	}
	return ""
}

func (f *caching) note() string { return filepath.Join(f.c.dir, f.key+noteEnd) }

func (f *caching) noted() bool {
	st, err := os.Stat(f.note())
	return err == nil && time.Since(st.ModTime()) < noteLasts
}

// begin notes that the tool runs, for a fetch that finds that one before it was killed
// meanwhile.
func (f *caching) begin(ctx context.Context) error {
	going := f.note() + goingEnd
	if exists(going) {
		f.clear(ctx)
	}
	return os.WriteFile(going, nil, 0o600)
}

// lockQuiet is how long an abandoned lock was not touched: npx touches its own each
// second.
const lockQuiet = 5 * time.Second

// clear removes what an npx that was killed has left: its lock, for which the next one
// would wait a minute long, and what it had half installed, which the next one would
// take for whole.
func (f *caching) clear(ctx context.Context) {
	dir := f.npxDir()
	if dir == "" {
		return
	}
	lock := filepath.Join(dir, "concurrency.lock")
	first, err := os.Stat(lock)
	for err == nil && time.Since(first.ModTime()) < lockQuiet {
		select {
		case <-time.After(lockQuiet / 10):
		case <-ctx.Done():
			return
		}
		var now os.FileInfo
		if now, err = os.Stat(lock); err == nil && !now.ModTime().Equal(first.ModTime()) {
			return // another npx has it
		}
	}
	if err == nil {
		os.Remove(lock)
	}
	if !exists(filepath.Join(dir, "node_modules", ".package-lock.json")) { // what npm writes last
		os.RemoveAll(dir)
	}
}

// npxDir is where npx installs the packages, unless its own files name another cache;
// empty for other tools.
func (f *caching) npxDir() string {
	if f.w.Kind != NPM {
		return ""
	}
	specs := f.w.specs()
	slices.Sort(specs)
	sum := sha512.Sum512([]byte(strings.Join(specs, "\n")))
	cache := cmp.Or(f.get("npm_config_cache"), filepath.Join(f.vars["HOME"], ".npm"))
	return filepath.Join(cache, "_npx", hex.EncodeToString(sum[:])[:16])
}

// run runs the tool and notes that it did what it was to do.
func (f *caching) run(ctx context.Context, p *progress) error {
	name, began := mask(f.w.Package), time.Now()
	out := &output{}
	for n, value := range f.vars {
		if secretName(n) {
			out.secrets.add(value)
		}
		out.secrets.addURLs(value)
	}
	for _, spec := range f.w.specs() {
		out.secrets.addURLs(spec)
	}
	if err := f.begin(ctx); err != nil {
		return fmt.Errorf("fetch package %q: %w", name, err)
	}
	step := f.step
	step.Out = out
	rest := f.watch(p, out)
	err := f.c.runner.Run(ctx, step)
	logged := rest()
	if ctx.Err() == nil { // else it was killed, as when the gateway is
		os.Remove(f.note() + goingEnd)
	}
	if err != nil {
		return explain(ctx, *f.w, tool(step.Command), out, err)
	}
	if logged || p.bytes.Load() > 0 {
		f.c.log.Info(logFetched, "package", name, "took", time.Since(began).Round(100*time.Millisecond))
	}
	if err := os.WriteFile(f.note(), []byte(name+"\n"), 0o600); err != nil {
		f.c.log.Warn("it is not noted that a package was fetched", "package", name, "err", err)
	}
	return nil
}

// fetchSlow is after how long a tool is taken to fetch: one that finds its packages in
// its cache has ended by then.
const fetchSlow = 2 * time.Second

// watch counts what npx installs, or what uv says that it loads, until rest is called,
// which reports whether the log has it that something is fetched.
func (f *caching) watch(p *progress, out *output) (rest func() bool) {
	stop, logged, began := make(chan struct{}), false, time.Now()
	var over sync.WaitGroup
	over.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		before, pause := f.installed(), time.Now()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			if at := time.Now(); !at.Before(pause) {
				p.set(f.installed()-before, out)
				pause = time.Now().Add(10 * time.Since(at)) // a large tree must not take most of the time
			}
			if !logged && (p.bytes.Load() > 0 || time.Since(began) >= fetchSlow) {
				logged = true
				f.c.log.Info(logFetching, "package", p.name)
			}
		}
	})
	return func() bool { close(stop); over.Wait(); return logged }
}

// installed is how much is where npx installs the packages.
func (f *caching) installed() int64 {
	dir := f.npxDir()
	if dir == "" {
		return 0
	}
	bytes, _, _ := measure(dir)
	return bytes
}
