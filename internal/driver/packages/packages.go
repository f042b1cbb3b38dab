// Package packages makes npx and uvx commands run without network. What such a
// command would fetch at each start is fetched once, by a step of its own that
// has network, into a folder that is not changed from then on, and pinned: the same
// wish is answered with the same versions from then on.
//
//	w, ok, err := packages.Parse("npx", []string{"-y", "@modelcontextprotocol/server-memory"})
//	found, err := store.Get(ctx, *w, 0)   // minutes the first time, nothing later
//	// show found.At and found.Reads read-only, which found.Moves says where to find,
//	// then run found.Command with found.Args.
//
// A store is a folder with one owner at a time:
//
//	<hash>-<n>         what a wish got, the nth time it was fetched; with a record
//	<key>.<random>.part a fetch that goes on, or was cut; Sweep removes it
//	python/            interpreters that uv downloaded
//
// There is a next n where the interpreter of the one before is gone, or it is not
// whole. That stays, since instances and snapshots may need it. A program sees its
// folder under another name, which is made of what is in it: see Inside.
//
// No code of a package is run on the host, unless scripts are allowed: npm runs
// no lifecycle scripts, Python packages are wheels only, and what is installed is
// looked at by the host's interpreter from outside.
package packages

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
)

// Kind is where packages come from.
type Kind string

// The kinds of packages.
const (
	NPM    Kind = "npm"
	Python Kind = "python"
)

// What a caller may want to tell apart. The message says the rest.
var (
	ErrNotFound    = errors.New("no such package")           // name or version is wrong
	ErrUnreachable = errors.New("the registry is not there") // network, proxy, certificates, login
	ErrLimit       = errors.New("over a limit")              // bytes, files or time
	ErrScripts     = errors.New("needs code that runs while it is installed")
	ErrNoTool      = errors.New("not installed") // node, npm, python
)

// Wanted is a command that needs packages. Parse makes it.
type Wanted struct {
	Kind    Kind
	Tool    string   // the command as it was given: npx, uvx, or a path of one
	Package string   // as its installer takes it: name@1.2.3, name[extra]==1.2, git+https://...
	Extra   []string // more packages that must be there: npx -p, uvx --with
	Bin     string   // the program in them; empty is the package's own
	Args    []string // for that program
	Python  string   // a version or a path; empty is the host's

	// Settings are the indexes and registries that options of the command set, as
	// variables. Env is the environment of the server, for the caller to set: of
	// it, only such settings and PATH are used.
	Settings map[string]string
	Env      map[string]string

	// AllowScripts lets packages run code on the host while they are installed:
	// lifecycle scripts of npm, builds of Python packages.
	AllowScripts bool
}

// Found is what to run instead, without network. All paths but Dir and Lock are
// those that the program sees, and absolute. They are the same outside, unless they
// are in one of Moves.
type Found struct {
	Dir     string            // the packages
	At      string            // where the program sees them, read-only
	Moves   map[string]string // where folders are outside, by where the program sees them
	Command string            // an interpreter or a program
	Args    []string          // with those of the wish at the end
	Env     map[string]string // to add
	Path    []string          // folders to put in front of PATH
	Reads   []string          // what else must be seen: the interpreter and its library, links resolved

	Name    string // the package that was meant, as it is called
	Version string // the version that was resolved
	Lock    string // a file in Dir that has all versions
}

// Limits bound one fetch.
type Limits struct {
	Bytes int64 // default 2 GiB
	Files int   // default 200,000
}

// Options of a store. The zero value works.
type Options struct {
	Runner  Runner // default Host
	Log     *slog.Logger
	Limits  Limits
	Environ func() []string // the gateway's environment; default os.Environ
}

// Store keeps packages in a folder.
type Store struct {
	dir  string
	opts Options

	fetches *fetches[*record] // by key

	mu    sync.Mutex
	parts map[string]bool // fetches that go on
}

// Open opens the store in a folder, which it makes where it is missing.
func Open(dir string, opts Options) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(abs, 0o700)
	}
	if err == nil {
		// Interpreters and tools resolve links: the paths that they write must be
		// the ones that we look for.
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return nil, fmt.Errorf("open the store of packages: %w", err)
	}
	if opts.Runner == nil {
		opts.Runner = Host{}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Environ == nil {
		opts.Environ = os.Environ
	}
	if opts.Limits.Bytes <= 0 {
		opts.Limits.Bytes = 2 << 30
	}
	if opts.Limits.Files <= 0 {
		opts.Limits.Files = 200_000
	}
	return &Store{dir: abs, opts: opts, fetches: newFetches[*record](), parts: make(map[string]bool)}, nil
}

// Close ends the running fetches. None begins after it.
func (s *Store) Close() { s.fetches.group.Close() }

// Get returns what to run for a wish, and fetches it where it is not there.
// Several that want the same at once wait for one fetch, which goes on when all of
// them have left, for as long as most, or 10 minutes where that is zero.
func (s *Store) Get(ctx context.Context, w Wanted, most time.Duration) (Found, error) {
	if err := w.check(); err != nil {
		return Found{}, err
	}
	if rec, ok := s.newest(w.key()); ok {
		if found, err := s.found(ctx, rec, w); !errors.Is(err, errStale) {
			return found, err
		}
	}
	rec, err := s.share(ctx, w, most)
	if err != nil {
		return Found{}, err
	}
	return s.found(ctx, rec, w)
}

// share joins the fetch of a wish, or starts it.
func (s *Store) share(ctx context.Context, w Wanted, most time.Duration) (*record, error) {
	key := w.key()
	return s.fetches.do(ctx, key, mask(w.Package), most, func(ctx context.Context, p *progress) (*record, error) { return s.fetch(ctx, key, w, p) })
}

// Fetching says how far the fetch of a wish is; nil where none is running.
func (s *Store) Fetching(w Wanted) *api.Fetch { return s.fetches.of(w.key()) }

// found makes a record's answer to one wish.
func (s *Store) found(ctx context.Context, rec *record, w Wanted) (Found, error) {
	var found Found
	var err error
	switch rec.Kind {
	case NPM:
		found, err = s.foundNPM(ctx, rec, w)
	default:
		found, err = s.foundPython(rec, w)
	}
	if err != nil {
		return Found{}, err
	}
	found.Dir, found.At, found.Moves, found.Name, found.Version = rec.dir, rec.inside(), s.moves(rec), rec.Name, rec.Version
	found.Lock = filepath.Join(rec.dir, rec.LockFile)
	return found, nil
}
