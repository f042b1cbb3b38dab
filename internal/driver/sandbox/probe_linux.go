//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// Probe says what of sandboxes works here, by making one in a folder of its own,
// freezing it and going on from there.
func Probe(ctx context.Context, o Options) (found []Step) {
	dir, err := os.MkdirTemp(o.Dir, "tine-probe")
	if err != nil {
		return []Step{{Name: "folder", Needed: true, Detail: err.Error(), Mend: "make room for temporary files"}}
	}
	defer os.RemoveAll(dir)
	o.Dir, o.ParkAfter = dir, -1
	d := New(o)
	defer d.Close()
	p := &probe{d: d, dir: dir}
	defer p.clear()
	for _, step := range []func(context.Context) Step{p.binary, p.helper, p.limits, p.owners, p.start, p.fork} {
		f := step(ctx)
		found = append(found, f)
		if f.Needed && !f.OK {
			break
		}
	}
	return found
}

// probe is what Probe made so far.
type probe struct {
	d    *Driver
	dir  string
	help *helper
	recs []record
}

func (p *probe) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), killWait)
	defer cancel()
	for _, rec := range p.recs {
		_ = p.d.destroy(ctx, rec)
	}
}

func (p *probe) binary(context.Context) Step {
	f := Step{Name: "binary", Needed: true}
	path, err := Find(p.d.opts.Binary)
	if err == nil {
		_, err = p.d.helpers.ours()
	}
	if err != nil {
		f.Detail, f.Mend = err.Error(), "install tine-sandbox; "+whence
		return f
	}
	f.OK, f.Detail = true, path
	return f
}

func (p *probe) helper(context.Context) (f Step) {
	f = Step{Name: "namespaces", Needed: true}
	hash, err := p.d.helpers.ours()
	if err == nil {
		p.help, err = p.d.helpers.get(hash)
	}
	if err != nil {
		f.Detail, f.Mend = namespaceSetting(os.Geteuid(), readSetting)
		if f.Detail == "" {
			f.Detail = strings.TrimSuffix(err.Error(), askDoctor) // which asks
		}
		return f
	}
	f.OK, f.Detail = true, "as root; gVisor "+p.help.gvisor
	if !p.d.rootful {
		f.Detail = "as an ordinary user, who is root in a user namespace; gVisor " + p.help.gvisor
	}
	return f
}

// limits work everywhere, but for that of the CPU, which is set only where the config
// asks for it.
func (p *probe) limits(context.Context) Step {
	f := Step{Name: "limits", OK: true}
	switch watched := "of memory (looked at " + watchRate + "), processes, files and what is written; not of the CPU: sandbox.cpus has no effect, "; {
	case !p.d.rootful:
		f.Detail = watched + "since an ordinary user has no cgroups"
	case !cgroupsWork():
		f.Detail = watched + "since cgroups can't be written to; mount /sys/fs/cgroup writable for it"
	default:
		f.Detail = "of memory and CPU (by cgroups), processes, files and what is written"
	}
	return f
}

func (p *probe) owners(ctx context.Context) Step {
	f := Step{Name: "directories"}
	if !p.d.rootful {
		f.OK, f.Detail = true, "what a server writes in its state and the workspace is the user's"
		return f
	}
	root := control.Root{Dir: filepath.Join(p.d.mountsDir(), "probe"), Parts: []control.Part{{Path: "0", Source: p.dir, Write: true, Owner: &control.Owner{InsideUID: 1000, InsideGID: 1000}}}}
	if _, _, err := p.help.call(ctx, control.Request{Op: control.OpRoot, Root: &root}); err != nil {
		f.Detail, f.Mend = "this file system can't show files as another's: "+err.Error(), "keep the state folder on ext4, xfs or btrfs; until then the files of states and workspaces are given to the user inside"
		return f
	}
	_, _, _ = p.help.call(ctx, control.Request{Op: control.OpDrop, Root: &root})
	f.OK, f.Detail = true, "state and workspace are shown as the user's inside"
	return f
}

// box makes a sandbox with a program that does nothing for long.
func (p *probe) box(ctx context.Context, n int) (*making, error) {
	spec := driver.Spec{
		Server: "probe", Dir: filepath.Join(p.dir, "box"+strconv.Itoa(n)), Command: "/bin/sleep", Args: []string{"600"},
		Options: &Config{Memory: 512 << 20, Pids: 64, Files: 64, Disk: 1 << 20},
	}
	plan, err := p.d.plan(ctx, spec)
	if err != nil {
		return nil, err
	}
	m := &making{d: p.d, spec: spec, plan: plan, dir: spec.Dir, rec: record{Sandbox: newName(), Runsc: p.help.hash, Flags: plan.flags(p.d)}}
	p.recs = append(p.recs, m.rec)
	if err := m.create(ctx); err != nil {
		return nil, err
	}
	m.pipe.Close()
	m.stderr.Close()
	return m, nil
}

func (p *probe) start(ctx context.Context) Step {
	f := Step{Name: "start", Needed: true}
	began := time.Now()
	m, err := p.box(ctx, 0)
	if err == nil {
		err = m.run(ctx, stateRecord{})
	}
	if err != nil {
		f.Detail, f.Mend = "no sandbox can be made: "+err.Error(), "see whether seccomp or ptrace are forbidden here (a container, a hardened kernel); or use driver: docker"
		return f
	}
	f.OK, f.Detail = true, fmt.Sprintf("a program ran in a sandbox, started in %d ms", time.Since(began).Milliseconds())
	return f
}

func (p *probe) fork(ctx context.Context) Step {
	f := Step{Name: "live forks"}
	began := time.Now()
	image := filepath.Join(p.dir, "image")
	err := os.Mkdir(image, 0o700)
	if err == nil {
		_, _, err = p.help.call(ctx, control.Request{Op: control.OpCheckpoint, Sandbox: p.recs[0].Sandbox, Flags: p.recs[0].Flags, Image: image})
	}
	var m *making
	if err == nil {
		m, err = p.box(ctx, 1)
	}
	if err == nil {
		err = m.restore(ctx, image)
	}
	if err == nil && !m.rec.ID.Lives() {
		err = errors.New("the copy ended at once")
	}
	if err != nil {
		f.Detail, f.Mend = "a sandbox can't be forked with its memory: "+err.Error(), "set fork: files, with the directories that are the state"
		return f
	}
	f.OK, f.Detail = true, fmt.Sprintf("frozen and restored in %d ms, without a slot", time.Since(began).Milliseconds())
	return f
}
