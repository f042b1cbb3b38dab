//go:build linux && (amd64 || arm64)

package sandbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/dirs"
	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
	"github.com/tine-mcp/tine/internal/driver/sandbox/layout"
)

// Where a program finds what is its own.
const (
	insideState = "/state"
	insideHome  = "/home/user"
	insidePath  = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// plan is what a sandbox is made of. It is the same for every instance of a
// server, but for where the sources of its mounts are.
type plan struct {
	box    Config
	args   []string
	env    []string
	cwd    string
	uid    int
	gid    int
	root   control.Root
	base   string // digest of what a memory needs of the root
	stamp  string // and as an earlier version made it
	needs  map[string]string
	rootID string    // digest of what the root is for: sandboxes with the same one share it
	run    *command  // the program, as it was found
	looks  looks     // how to find out that the root is out of date
	at     time.Time // the host was looked at after this
	mounts []mount
	net    string // of gVisor: none, sandbox or host
	cgroup bool
}

// mount is a directory of the host that a program may write to.
type mount struct {
	inside string
	source string
	file   bool     // not a directory
	masks  []string // below it, relative
}

// plan works out what a spec asks for. It fetches packages where they are missing.
func (d *Driver) plan(ctx context.Context, spec driver.Spec) (*plan, error) {
	p, err := d.planFrom(ctx, spec, nil, nil)
	if err != nil {
		return nil, err
	}
	// Sandboxes share a root: what is hidden from one that runs stays so.
	if before := d.roots.layout(p.rootID); before != nil && !p.looks.layout.Hides(before) {
		return d.planFrom(ctx, spec, nil, before)
	}
	return p, nil
}

// planFrom is plan for a sandbox that runs, which was started with another plan, and
// for one whose root has a layout.
func (d *Driver) planFrom(ctx context.Context, spec driver.Spec, begun *plan, before *layout.Layout) (*plan, error) {
	if options(spec) == nil {
		return nil, errors.New("it has no sandbox in its config; set sandbox: true")
	}
	p := &plan{at: time.Now(), box: *options(spec), cgroup: d.rootful && !d.bare && cgroupsWork()}
	var err error
	if p.uid, p.gid, err = d.user(p.box.User); err != nil {
		return nil, err
	}
	space := insideWorkspace(spec)
	filled, err := dirs.FillIn(spec, dirs.Places{State: insideState, Workspace: space})
	if err != nil {
		return nil, err
	}
	want := layout.Wanted{
		Cwd: hostCwd(filled.Cwd, space), Workspace: space, AllowRead: p.box.AllowRead, AllowWrite: p.box.AllowWrite, DenyRead: p.box.DenyRead, Hide: d.hidden(), Private: d.private(),
		UID: p.uid, GID: p.gid, Hostname: hostname(p.box), Network: p.box.Network == NetworkHost,
	}
	var seen *sight
	var run *command
	if begun != nil {
		run, want.Running = begun.run, begun.looks.layout
	} else if seen, err = d.see(ctx, filled, want); err == nil {
		run = seen.run
	}
	if err == nil && (begun != nil || before != nil) {
		want.Before = before
		seen, err = d.look(filled, run, want)
	}
	if err != nil {
		return nil, err
	}
	l := seen.layout
	p.run, p.args, p.cwd = run, run.args, filled.Cwd
	switch {
	case p.cwd == "" && spec.Workspace != nil:
		p.cwd = space
	case p.cwd == "":
		p.cwd = insideHome
	}
	p.env = d.env(filled, run)
	p.split(d, l, run.own)
	if err := p.addMounts(spec); err != nil {
		return nil, err
	}
	p.base, p.stamp, p.needs = digest(l.Digest), digest(l.Stamp), l.Needs
	p.looks = p.newLooks(l)
	// All that decides what is shown and hidden is in it: two servers must not bring one
	// root up to date in different ways.
	p.rootID = digest(p.args, p.env, p.cwd, p.box.Root, p.box.AllowRead, p.box.AllowWrite, p.box.DenyRead,
		space, hostCwd(filled.Cwd, space), p.uid, p.gid, hostname(p.box), p.box.Network == NetworkHost, run.mode, run.dir, run.reads, run.own, run.moves,
		lasting(p.root))
	switch {
	case p.box.Network == NetworkHost:
		p.net = netHost
	case len(p.box.Domains) > 0 || p.box.Transport == config.ContainerHTTP:
		p.net = netSandbox
	default:
		p.net = netNone
	}
	return p, nil
}

// split makes a mount of what the program may write to on the host: what is
// written in the root is kept in memory. In the root there is a place for it. Its
// packages are its own, so that it may write beside itself.
func (p *plan) split(d *Driver, l *layout.Layout, own string) {
	for _, part := range l.Parts {
		if part.Source != "" && part.Write {
			m := mount{inside: part.Path, source: part.Source}
			for _, mask := range l.Masks {
				if rel, err := filepath.Rel(part.Path, mask); err == nil && filepath.IsLocal(rel) && rel != "." {
					m.masks = append(m.masks, rel)
				}
			}
			info, err := os.Stat(part.Source)
			m.file = err == nil && !info.IsDir()
			p.mounts = append(p.mounts, m)
			part = control.Part{Path: part.Path, File: m.file}
		}
		if own != "" && d.rootful && within(own, part.Source) && part.Source != "" {
			part.Owner = &control.Owner{InsideUID: p.uid, InsideGID: p.gid}
		}
		p.root.Parts = append(p.root.Parts, part)
	}
	p.root.Masks = l.Masks
	// gVisor covers an empty /tmp with memory of its own, which has no limit.
	if !slices.ContainsFunc(p.root.Parts, func(part control.Part) bool {
		return within("/tmp", part.Path) && (part.Path != "/tmp" || part.Source != "")
	}) {
		p.root.Parts = append(p.root.Parts, control.Part{Path: "/tmp/.tine"})
	}
}

// insideWorkspace is where a program finds the workspace.
func insideWorkspace(spec driver.Spec) string {
	return cmp.Or(spec.WorkspacePath, layout.Workspace)
}

// hidden is what no sandbox may see: what is the driver's own, and the state folder.
func (d *Driver) hidden() []string { return append([]string{d.opts.Dir}, d.opts.Hide...) }

// private are the files of the gateway's config.
func (d *Driver) private() []string {
	if d.opts.Private == nil {
		return nil
	}
	return d.opts.Private()
}

// hostCwd is the folder of the host that a program runs in; empty where it is one
// of its own inside.
func hostCwd(cwd, space string) string {
	if cwd == space || cwd == insideState || strings.HasPrefix(cwd, insideState+"/") || strings.HasPrefix(cwd, space+"/") {
		return ""
	}
	return cwd
}

func hostname(b Config) string {
	if b.Hostname != "" {
		return b.Hostname
	}
	return "sandbox"
}

// user is the program's user inside. An ordinary user has one id to give away,
// which is root's in the namespace of the sandbox: such a program has the number
// of root and none of its powers.
func (d *Driver) user(text string) (uid, gid int, err error) {
	if !d.rootful {
		return 0, 0, nil
	}
	if text == "" {
		return 1000, 1000, nil
	}
	u, g, both := strings.Cut(text, ":")
	uid, err = strconv.Atoi(u)
	if gid = uid; err == nil && both {
		gid, err = strconv.Atoi(g)
	}
	if err != nil || uid <= 0 || gid <= 0 {
		return 0, 0, fmt.Errorf("sandbox.user %q is not the UID:GID of a user other than root", text)
	}
	return uid, gid, nil
}

// env is the environment of the program: what its config gives, and what every
// program needs.
func (d *Driver) env(spec driver.Spec, run *command) []string {
	path := insidePath
	for _, dir := range slices.Backward(append(slices.Clip(run.first), filepath.Dir(run.path))) {
		if !slices.Contains(filepath.SplitList(path), dir) {
			path = dir + ":" + path
		}
	}
	all := map[string]string{"PATH": path, "HOME": insideHome, "USER": "user", "LOGNAME": "user", "TMPDIR": "/tmp", "LANG": "C.UTF-8"}
	maps.Copy(all, run.env)
	maps.Copy(all, spec.Env)
	if len(options(spec).Domains) > 0 {
		maps.Copy(all, proxyEnv()) // last: there is no other way out
	}
	list := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, name+"="+all[name])
	}
	return list
}

func lookupEnv(environ []string, name string) string {
	for _, kv := range environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// addMounts adds the directories that are the server's own.
func (p *plan) addMounts(spec driver.Spec) error {
	for _, dir := range spec.Dirs {
		source := ""
		if spec.State != "" {
			source = filepath.Join(spec.State, dirsName, dir.Name)
		}
		inside := insideState + "/" + dir.Name
		p.mounts = append(p.mounts, mount{inside: inside, source: source})
		p.root.Parts = append(p.root.Parts, control.Part{Path: inside})
	}
	if spec.Workspace != nil {
		source := spec.Workspace.Dir()
		if source == "" {
			return errors.New("the workspace is not a folder, so that no program can see it")
		}
		p.mounts = append(p.mounts, mount{inside: insideWorkspace(spec), source: source})
	}
	return nil
}

// within reports whether a path is a directory or below it.
func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// program is what a checkpoint can't be restored without: the same arguments, in
// the same places.
func (p *plan) program() string {
	var points []string
	for _, m := range p.mounts {
		points = append(points, m.inside)
		for _, mask := range m.masks {
			points = append(points, filepath.Join(m.inside, mask))
		}
	}
	return digest(p.args[0], points, p.uid, p.gid, p.net, p.box.Port)
}

// digest tells things apart.
func digest(of ...any) string {
	b, err := json.Marshal(of)
	if err != nil {
		panic(err) // strings and numbers
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// flags are those of gVisor.
func (p *plan) flags(d *Driver) []string {
	f := []string{
		"--root=" + d.runDir(), "--platform=systrap", "--network=" + p.net,
		"--overlay2=none", "--file-access=shared", // see annotations
		"--host-settings=ignore", "--restore-spec-validation=ignore",
	}
	if !p.cgroup {
		f = append(f, "--ignore-cgroups=true")
	}
	return f
}

// cgroupsWork reports whether limits of memory, CPU and processes can be set.
func cgroupsWork() bool {
	for _, dir := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/cgroup.subtree_control"} {
		f, err := os.Stat(dir)
		if err != nil {
			continue
		}
		if f.IsDir() {
			return writable(dir)
		}
		return writable(filepath.Dir(dir))
	}
	return false
}
