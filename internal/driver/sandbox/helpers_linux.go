//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

const binaryPrefix = "runsc-"

// hashName is what the hash of a binary looks like.
var hashName = regexp.MustCompile(`^[0-9a-f]{16}$`)

// helpers are the helpers of the binary of today and of earlier ones, made when
// they are needed.
type helpers struct {
	d *Driver

	mu      sync.Mutex
	closed  bool
	current string // the hash of the binary of today
	running map[string]*helper
	making  map[string]*sync.Mutex
}

// ours is the hash of the binary of today, which is copied to the driver's folder
// where it is not there.
func (h *helpers) ours() (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current != "" {
		return h.current, nil
	}
	path, err := Find(h.d.opts.Binary)
	if err != nil {
		return "", err
	}
	hash, err := binaryHash(path)
	if err != nil {
		return "", err
	}
	if err := h.d.prepare(); err != nil {
		return "", err
	}
	if err := h.install(path, hash); err != nil {
		return "", err
	}
	h.current = hash
	return hash, nil
}

// binaryName is the program that has gVisor in it.
const binaryName = "tine-sandbox"

// whence says where it comes from.
const whence = "it comes with tine, in the same release, package or image, and from source make build makes both: put it in one of these places"

// Find finds it: where it is given, or beside the program that runs, or on PATH. A tine
// that is installed by another name has its own beside it, with -sandbox behind that name.
func Find(given string) (string, error) {
	if given != "" {
		if err := isBinary(given); err != nil {
			return "", driver.Final(fmt.Errorf("%w; mend sandbox_binary in the config", err))
		}
		return given, nil
	}
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	for _, path := range []string{self + "-sandbox", filepath.Join(filepath.Dir(self), binaryName), onPath()} {
		if _, err := os.Stat(path); err == nil {
			if err := isBinary(path); err != nil {
				return "", driver.Final(fmt.Errorf("%w; install tine-sandbox there, or name one elsewhere with sandbox_binary in the config", err))
			}
			return path, nil
		}
	}
	return "", driver.Final(fmt.Errorf("sandboxes need the program %s, which is neither named by sandbox_binary in the config, nor beside tine in %s, nor on PATH; %s", binaryName, filepath.Dir(self), whence))
}

func onPath() string {
	path, err := exec.LookPath(binaryName)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return ""
	}
	return path
}

// isBinary reports what is not tine-sandbox, which would fail in its own words.
func isBinary(path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s is not %s: %w", path, binaryName, err)
	}
	if filepath.Base(info.Path) != binaryName {
		return fmt.Errorf("%s is not %s, but %s", path, binaryName, filepath.Base(info.Path))
	}
	return nil
}

// binaryHash tells binaries apart by the id that Go gives each, and refuses one
// that can't be a sandbox.
func binaryHash(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("look at the binary %s: %w", path, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "", fmt.Errorf("the binary %s is dynamically linked, and can't be a sandbox; take the one that comes with tine, or build it with CGO_ENABLED=0, as make build does", path)
		}
	}
	sum := sha256.New()
	if s := f.Section(".note.go.buildid"); s != nil {
		if b, err := s.Data(); err == nil && len(b) > 16 {
			sum.Write(b)
			return hex.EncodeToString(sum.Sum(nil))[:16], nil
		}
	}
	all, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer all.Close()
	if _, err := io.Copy(sum, all); err != nil {
		return "", fmt.Errorf("read the binary %s: %w", path, err)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16], nil
}

func (h *helpers) path(hash string) string {
	return filepath.Join(h.d.opts.Programs, binaryPrefix+hash)
}

// lock is the file that the helper of a binary locks: the binary, or one in the driver's
// folder where other drivers have the same binary.
func (h *helpers) lock(hash string) (string, error) {
	if !h.shared() {
		return h.path(hash), nil
	}
	path := filepath.Join(h.d.opts.Dir, binaryPrefix+hash+".lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("make a lock for the helper of sandboxes: %w", err)
	}
	return path, f.Close()
}

// install copies a binary to the driver's folder.
func (h *helpers) install(path, hash string) (err error) {
	to := h.path(hash)
	if _, err := os.Stat(to); err == nil {
		if h.shared() {
			_ = os.Chtimes(to, time.Time{}, time.Now()) // it is not old
		}
		return nil
	}
	if err := os.MkdirAll(h.d.opts.Programs, 0o700); err != nil {
		return err
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(h.d.opts.Programs, binaryPrefix+"*"+folder.Part)
	if err != nil {
		return fmt.Errorf("copy the binary for sandboxes: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(out.Name())
		}
	}()
	_, err = io.Copy(out, in)
	err = errors.Join(err, out.Chmod(0o700), out.Close())
	if err == nil {
		err = os.Rename(out.Name(), to)
	}
	if err != nil {
		return fmt.Errorf("copy the binary for sandboxes: %w", err)
	}
	return nil
}

// has reports whether a binary is there.
func (h *helpers) has(hash string) bool {
	if !hashName.MatchString(hash) {
		return false
	}
	_, err := os.Stat(h.path(hash))
	return err == nil
}

// reads returns the hash of a binary that can read what another one of a version
// of gVisor wrote: that one itself, or this.
func (h *helpers) reads(hash, gvisor string) (string, error) {
	if h.has(hash) {
		return hash, nil
	}
	ours, err := h.ours()
	if err != nil {
		return "", err
	}
	run, err := h.get(ours)
	if err != nil {
		return "", err
	}
	if gvisor == "" || gvisor == control.Unknown || run.gvisor != gvisor {
		return "", unfit{fmt.Errorf("it was made by another build of Tine, with gVisor %s, and this one has %s", orUnknown(gvisor), run.gvisor)}
	}
	return ours, nil
}

func orUnknown(s string) string {
	if s == "" {
		return "of an unknown version"
	}
	return s
}

var (
	errBinary   = errors.New("the binary that made it is gone")
	errStopping = errors.New("the gateway is stopping")
)

// get returns the helper of a binary, and starts it where it does not run.
func (h *helpers) get(hash string) (*helper, error) {
	if !hashName.MatchString(hash) {
		return nil, errBinary
	}
	h.mu.Lock()
	if h.making == nil {
		h.making, h.running = make(map[string]*sync.Mutex), make(map[string]*helper)
	}
	making := h.making[hash]
	if making == nil {
		making = new(sync.Mutex)
		h.making[hash] = making
	}
	h.mu.Unlock()
	making.Lock()
	defer making.Unlock()
	h.mu.Lock()
	run, closed := h.running[hash], h.closed
	h.mu.Unlock()
	if closed {
		return nil, errStopping
	}
	if run != nil {
		select {
		case <-run.done:
			h.d.opts.Log.Warn("the helper of sandboxes has ended; another is started", "error", run.gone())
		default:
			return run, nil
		}
	}
	locked, err := h.lock(hash)
	if err != nil {
		return nil, err
	}
	run, err = startHelper(h.path(hash), locked, h.d.opts.Start, h.d.rootful, h.d.beside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errBinary
	}
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		go run.end()
		return nil, errStopping
	}
	h.running[hash] = run
	return run, nil
}

// repeated are the operations that do no more when they are done twice.
var repeated = map[string]bool{
	control.OpPause: true, control.OpResume: true, control.OpSignal: true,
	control.OpDestroy: true, control.OpFind: true, control.OpEnd: true,
}

// maxTries bounds how many helpers may die of one request.
const maxTries = 5

// live returns the helper of a binary where one runs.
func (h *helpers) live(hash string) *helper {
	h.mu.Lock()
	defer h.mu.Unlock()
	if run := h.running[hash]; run != nil && !run.over() {
		return run
	}
	return nil
}

// call asks the helper of a binary for something about a sandbox that is there.
// Where that one ends meanwhile, another is asked, if that does no harm.
func (h *helpers) call(ctx context.Context, hash string, req control.Request, files ...*os.File) (control.Reply, []*os.File, error) {
	for tries := 1; ; tries++ {
		run, err := h.get(hash)
		if errors.Is(err, errHelper) && tries < maxTries && ctx.Err() == nil {
			continue // it died at once, and was asked for nothing
		}
		if err != nil {
			return control.Reply{}, nil, err
		}
		rep, out, err := run.call(ctx, req, files...)
		if !errors.Is(err, errHelper) || !repeated[req.Op] || tries == maxTries {
			return rep, out, err
		}
		select {
		case <-run.done:
		case <-ctx.Done():
			return rep, out, err
		}
	}
}

func (h *helpers) close() {
	h.mu.Lock()
	h.closed = true
	running := h.running
	h.running = nil
	h.mu.Unlock()
	for _, run := range running {
		run.end()
	}
}

// shared reports whether other drivers have the same binaries.
func (h *helpers) shared() bool { return h.d.opts.Programs != h.d.opts.Dir }

// prune removes binaries that nothing refers to.
func (h *helpers) prune(referenced map[string]bool) {
	if h.shared() {
		return
	}
	entries, err := os.ReadDir(h.d.opts.Dir)
	if err != nil {
		return
	}
	ours, _ := h.ours()
	for _, e := range entries {
		hash, ok := strings.CutPrefix(e.Name(), binaryPrefix)
		if !ok || hash == ours || referenced[hash] {
			continue
		}
		if err := os.Remove(filepath.Join(h.d.opts.Dir, e.Name())); err != nil && !errors.Is(err, syscall.ENOENT) {
			h.d.opts.Log.Warn("a binary of sandboxes is not removed", "file", e.Name(), "error", err)
		}
	}
}
