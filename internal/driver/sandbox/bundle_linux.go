//go:build linux && (amd64 || arm64)

package sandbox

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

func writable(dir string) bool { return unix.Access(dir, unix.W_OK) == nil }

// mountRoot is what the helper shows the sources of an instance's mounts at, each
// as the user's inside and without what is masked.
func (p *plan) mountRoot(d *Driver, name string) control.Root {
	r := control.Root{Dir: filepath.Join(d.mountsDir(), name)}
	for i, m := range p.mounts {
		part := control.Part{Path: strconv.Itoa(i), Inside: m.inside, Source: m.source, Write: true}
		if d.rootful {
			part.Owner = &control.Owner{InsideUID: p.uid, InsideGID: p.gid}
		}
		r.Parts = append(r.Parts, part)
		for _, mask := range m.masks {
			r.Masks = append(r.Masks, filepath.Join(part.Path, mask))
		}
	}
	return r
}

// openRoot is where a sandbox that is not handed out yet has a place for each of its
// mounts.
func (p *plan) openRoot(d *Driver, name string) control.Root {
	r := control.Root{Dir: filepath.Join(d.mountsDir(), name), Open: true}
	for i, m := range p.mounts {
		r.Parts = append(r.Parts, control.Part{Path: strconv.Itoa(i), File: m.file})
	}
	return r
}

// bundle writes what gVisor reads of a sandbox.
func (p *plan) bundle(d *Driver, dir, name, netns string) error {
	s := p.spec(d, name, netns)
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := folder.Write(filepath.Join(dir, "config.json"), b); err != nil {
		return fmt.Errorf("write what the sandbox is: %w", err)
	}
	return nil
}

func (p *plan) spec(d *Driver, name, netns string) *specs.Spec {
	s := &specs.Spec{
		Version:     specs.Version,
		Hostname:    hostname(p.box),
		Root:        &specs.Root{Path: d.roots.dir(p.rootID)},
		Annotations: p.annotations(d),
		Process: &specs.Process{
			User: specs.User{UID: uint32(p.uid), GID: uint32(p.gid)},
			Args: p.args, Env: p.env, Cwd: p.cwd,
			NoNewPrivileges: true,
			Capabilities:    &specs.LinuxCapabilities{},
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_NOFILE", Hard: uint64(p.box.Files), Soft: uint64(p.box.Files)},
				{Type: "RLIMIT_CORE"},
			},
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "tmpfs", Options: []string{"mode=1777", "size=" + strconv.FormatInt(p.shared(), 10)}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro"}},
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
			},
		},
	}
	for i, m := range p.mounts {
		s.Mounts = append(s.Mounts, specs.Mount{
			Destination: m.inside, Type: "bind", Options: []string{"rbind", "rw"},
			Source: filepath.Join(d.mountsDir(), name, strconv.Itoa(i)),
		})
		// The kernel would let what is below a mask be removed or replaced, and the
		// mask with it. A mount of gVisor's own can't be.
		for _, mask := range m.masks {
			s.Mounts = append(s.Mounts, specs.Mount{
				Destination: filepath.Join(m.inside, mask), Type: "bind", Options: []string{"rbind", "ro"},
				Source: filepath.Join(d.mountsDir(), name, strconv.Itoa(i), mask),
			})
		}
	}
	if p.box.Pids > 0 {
		// gVisor counts them itself, threads too. What a cgroup counts are its own.
		n := uint64(p.box.Pids)
		s.Process.Rlimits = append(s.Process.Rlimits, specs.POSIXRlimit{Type: "RLIMIT_NPROC", Hard: n, Soft: n})
	}
	if p.net != netHost {
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: netns})
	}
	if p.cgroup {
		s.Linux.CgroupsPath = "/" + name // names begin with tine-
		s.Linux.Resources = p.limits()
	}
	return s
}

// annotations lay memory over the root, for what the program writes there. gVisor has a
// flag for it, too, but then assumes that nothing below changes, and caches what it has
// seen. The root shows folders of the host, so gVisor has to look each time:
// file-access=shared.
func (p *plan) annotations(d *Driver) map[string]string {
	return map[string]string{
		"dev.gvisor.spec.rootfs.source":  d.roots.dir(p.rootID),
		"dev.gvisor.spec.rootfs.type":    "bind",
		"dev.gvisor.spec.rootfs.overlay": "memory",
		"dev.gvisor.spec.rootfs.options": "size=" + strconv.FormatInt(p.box.Disk-p.shared(), 10),
	}
}

// maxShared bounds what a program may have in /dev/shm.
const maxShared = 64 << 20

// shared is how much of what a program may write it may have in /dev/shm. Two
// filesystems of gVisor have no limit in common, so that each has a part of it.
func (p *plan) shared() int64 { return min(p.box.Disk/4, maxShared) }

// cpuPeriod is the time, in microseconds, that a share of the CPUs is of.
const cpuPeriod = 100_000

func (p *plan) limits() *specs.LinuxResources {
	r := &specs.LinuxResources{}
	if p.box.Memory > 0 {
		limit := p.box.Memory
		r.Memory = &specs.LinuxMemory{Limit: &limit}
	}
	if p.box.Pids > 0 {
		// The program gets an error before that. This is for gVisor, which ends where it
		// gets no thread: it has some for each process inside, and others for itself.
		r.Pids = &specs.LinuxPids{Limit: p.box.Pids*int64(runtime.NumCPU()+2) + ownThreads}
	}
	if p.box.CPUs > 0 {
		period, quota := uint64(cpuPeriod), int64(math.Ceil(p.box.CPUs*cpuPeriod))
		r.CPU = &specs.LinuxCPU{Period: &period, Quota: &quota}
	}
	return r
}

// ownThreads is how many threads gVisor may have for itself.
const ownThreads = 256
