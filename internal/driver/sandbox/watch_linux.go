//go:build linux && (amd64 || arm64)

package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver"
)

// watch ends sandboxes that take more memory than they may where no cgroup does:
// an ordinary user has none. It is the gateway's and not the helper's, because the
// gateway knows which ones are parked, and says what one died of; both end at
// once, and the next gateway goes on with what it adopts. Processes need no
// watch: gVisor counts them itself.
//
// One goroutine looks at all, for as long as there is one to look at.
type watch struct {
	mu     sync.Mutex
	looks  bool
	logged sync.Map // servers whose CPUs are not counted
}

// watchEvery is how often it looks. What a program takes in between it may have
// beyond its limit.
const (
	watchEvery = 100 * time.Millisecond
	watchRate  = "ten times a second"
)

// begin looks at an instance, which is among the live ones, until it is not.
func (w *watch) begin(i *instance) {
	if i.rec.Limit <= 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.looks {
		w.looks = true
		i.d.work.Go(func() { w.look(i.d) })
	}
}

// uncounted says once of a server that its share of the CPUs is not limited: to look
// now and then would not do.
func (w *watch) uncounted(d *Driver, spec driver.Spec, cpus float64) {
	if cpus <= 0 {
		return
	}
	if _, logged := w.logged.LoadOrStore(spec.Server, nil); !logged {
		level := slog.LevelWarn
		if spec.Front != "" { // the share of a built-in server is a default
			level = slog.LevelInfo
		}
		d.opts.Log.Log(context.Background(), level, "sandbox.cpus has no effect, since there are no cgroups for it; run Tine as root, or remove it", "server", spec.Server)
	}
}

func (w *watch) look(d *Driver) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for w.needed(d) {
		select {
		case <-d.ctx.Done():
			return
		case <-tick.C:
		}
		w.round(d)
	}
}

// round looks at each once. What is parked takes no more.
func (w *watch) round(d *Driver) {
	d.live.Range(func(k, _ any) bool {
		if i := k.(*instance); i.rec.Limit > 0 && !i.park.parked.Load() {
			i.bound()
		}
		return true
	})
}

// needed reports whether there is something to look at. Where there is not, the
// next begin starts another look.
func (w *watch) needed(d *Driver) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks = false
	d.live.Range(func(k, _ any) bool {
		w.looks = k.(*instance).rec.Limit > 0
		return !w.looks
	})
	return w.looks
}

// bound ends the sandbox where it takes more than it may, as the kernel does with
// one in a cgroup. Only the watch calls it.
func (i *instance) bound() {
	if i.over.Load() != 0 {
		return // it is on its way
	}
	look := i.usage.Look
	if i.d.opts.Memory != nil {
		look = i.d.opts.Memory
	}
	used, err := look(i.rec.PID, i.rec.Gofer.PID)
	switch {
	case err != nil:
		if i.blind++; i.blind == maxBlind && i.rec.ID.Lives() {
			i.log.Warn("how much memory a sandbox takes can't be seen, so that nothing limits it", "server", i.h.Server, "error", err)
		}
	case used > i.rec.Limit:
		i.over.Store(used)
		if err := i.rec.ID.Signal(killed); err != nil && !errors.Is(err, os.ErrProcessDone) {
			i.over.Store(0)
			i.log.Warn("a sandbox that takes too much memory can't be ended", "server", i.h.Server, "error", err)
		}
	}
}

// tooMuch says that the sandbox was ended because of its memory, by the watch or by
// the kernel.
func (i *instance) tooMuch() string {
	if i.over.Load() == 0 && (i.rec.Limit > 0 || !killedByKernel(i.rec.Sandbox)) {
		return ""
	}
	return fmt.Sprintf(", because it took more memory than %s lets it have", cmp.Or(i.d.opts.MemoryFlag, "servers."+i.h.Server+".sandbox.memory"))
}

// killedByKernel reports whether the kernel has ended something in the cgroup of a
// sandbox, of either version, for want of memory.
func killedByKernel(sandbox string) bool {
	for _, path := range []string{"memory/" + sandbox + "/memory.oom_control", sandbox + "/memory.events"} {
		b, err := os.ReadFile("/sys/fs/cgroup/" + path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if n, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok && n != "0" {
				return true
			}
		}
	}
	return false
}

// A Usage measures the memory of one sandbox. The zero value is ready. gVisor keeps the
// memory of the program, its files and /dev/shm in a file without a name, and what it knows
// of them in its own memory, which grows with them.
type Usage struct {
	files []memoryFile
	own   int64 // of gVisor
	looks int
}

// ownEvery is with how many looks that of gVisor itself is looked at, which is more
// work and grows less.
const ownEvery = 8

// maxBlind is how many looks may see nothing before that is logged: a sandbox that is
// ending has no files for a moment.
const maxBlind = 20

type memoryFile struct {
	path string // in /proc
	ino  uint64
}

// Look returns the bytes that a sandbox takes.
func (u *Usage) Look(pid, gofer int) (int64, error) {
	all, ok := u.kept()
	if !ok {
		if err := u.find(pid); err != nil {
			return 0, err
		}
		if all, ok = u.kept(); !ok {
			return 0, errors.New("its memory is in another file by now")
		}
	}
	if u.looks%ownEvery == 0 {
		own, err := private(pid)
		if err != nil {
			return 0, err
		}
		opens, _ := private(gofer) // which may have just ended
		u.own = own + opens
	}
	u.looks++
	return all + u.own, nil
}

// kept is what is in the files, and false where they are not those any more. They
// are not held open: that would keep the memory of one that has ended.
func (u *Usage) kept() (int64, bool) {
	var all int64
	for _, f := range u.files {
		var s unix.Stat_t
		if err := unix.Stat(f.path, &s); err != nil || s.Ino != f.ino {
			return 0, false
		}
		all += s.Blocks * 512
	}
	return all, len(u.files) > 0
}

// find looks for the files among those that a sandbox has open.
func (u *Usage) find(pid int) error {
	u.files = nil
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return err
	}
	seen := make(map[uint64]bool)
	for _, name := range names {
		path := filepath.Join(dir, name)
		var s unix.Stat_t
		if to, err := os.Readlink(path); err != nil || !strings.HasPrefix(to, "/memfd:") || unix.Stat(path, &s) != nil || seen[s.Ino] {
			continue
		}
		seen[s.Ino] = true
		u.files = append(u.files, memoryFile{path, s.Ino})
	}
	if len(u.files) == 0 {
		return fmt.Errorf("among the files of %s is none with its memory: %w", dir, fs.ErrNotExist)
	}
	return nil
}

// private are the bytes that a process has for itself alone: what is resident, but
// for what it has mapped of files, those with the memory among them.
func private(pid int) (int64, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b))
	if len(fields) < 3 {
		return 0, fmt.Errorf("odd status %q of a process", b)
	}
	resident, err := strconv.ParseInt(fields[1], 10, 64)
	shared, sharedErr := strconv.ParseInt(fields[2], 10, 64)
	if err := errors.Join(err, sharedErr); err != nil {
		return 0, fmt.Errorf("odd status %q of a process: %w", b, err)
	}
	return (resident - shared) * int64(os.Getpagesize()), nil
}
