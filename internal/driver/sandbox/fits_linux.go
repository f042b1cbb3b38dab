//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/sandbox/layout"
)

// unfit is why a memory will never go on here, unlike what may be mended.
type unfit struct{ error }

func (u unfit) Unwrap() []error { return []error{u.error, driver.ErrUnfit} }

// fits says why a memory can't go on here; nil where it can.
func (d *Driver) fits(i imageInfo) error {
	if i.Arch != runtime.GOARCH {
		return unfit{fmt.Errorf("it was made on another kind of machine (%s, and this is %s)", i.Arch, runtime.GOARCH)}
	}
	here := cpuFeatures()
	var lacks []string
	for _, f := range i.CPU {
		if !slices.Contains(here, f) {
			lacks = append(lacks, f)
		}
	}
	if len(lacks) > 0 {
		return unfit{fmt.Errorf("it was made on another CPU, and the CPU here lacks %s", strings.Join(lacks, ", "))}
	}
	_, err := d.helpers.reads(i.Runsc, i.GVisor)
	return err
}

// suits says why a memory is not one of what a sandbox would be made of now; nil
// where it is. A digest that is empty is not known.
func (i imageInfo) suits(p *plan) error {
	if err := i.suitsRoot(p); err != nil {
		return err
	}
	if i.Program != "" && i.Program != p.program() {
		return unfit{errors.New("the server is another program since it was made (its command, its user, its directories or its network)")}
	}
	return nil
}

// suitsRoot is suits for the root alone. An earlier version compared the times of files.
func (i imageInfo) suitsRoot(p *plan) error {
	if i.Base == "" || i.Base == p.base || i.Base == p.stamp {
		return nil
	}
	return unfit{fmt.Errorf("the root has changed since it was made (%s)", i.changed(p))}
}

// changed says what of the root has, as far as that was noted.
func (i imageInfo) changed(p *plan) string {
	var all []string
	for _, at := range slices.Sorted(maps.Keys(i.Needs)) {
		switch now, there := p.needs[at]; {
		case now == i.Needs[at]:
		case at == layout.NeedsConfig:
			all = append(all, "what its config shows it: packages, sandbox.root, user, hostname, network, allow_read, allow_write or deny_read")
		case !there:
			all = append(all, at+" is gone")
		default:
			all = append(all, at+" is another")
		}
	}
	for _, at := range slices.Sorted(maps.Keys(p.needs)) {
		if _, was := i.Needs[at]; !was && len(i.Needs) > 0 {
			all = append(all, at+" is new")
		}
	}
	if len(all) == 0 {
		return "the program or its packages, what is installed on the system, or sandbox.root, allow_read, allow_write or deny_read in the config"
	}
	return strings.Join(all, ", ")
}

// goesOn looks that a spec can go on from the memory of a snapshot. The program is not
// known yet, for the workspace is not known before the start, which looks again. To put
// the root together takes some milliseconds, and is done for the first of many.
func (d *Driver) goesOn(ctx context.Context, spec driver.Spec, r stateRecord) error {
	if !d.copies(spec) {
		return unfit{fmt.Errorf("it has the memory of the server, which can't go on from it on the network of the host; set servers.%s.sandbox.network to what it was%s", spec.Server, r.anew(spec.Server))}
	}
	err := d.fits(*r.Image)
	known := rootOf{spec.Server, r.Image.Base}
	if err == nil && !d.kept.suited(known, false) {
		p, planErr := d.plan(ctx, spec)
		if planErr != nil { // which Start will say
			return ctx.Err()
		}
		if err = r.Image.suitsRoot(p); err == nil {
			d.kept.suited(known, true)
		}
	}
	if errors.As(err, new(unfit)) {
		return fmt.Errorf("%w; make it again%s", err, r.anew(spec.Server))
	}
	if err != nil {
		return fmt.Errorf("%w%s", err, r.anew(spec.Server))
	}
	return nil
}

// continues looks that an instance can go on from the memory in its state, which
// may have been there for long.
func (d *Driver) continues(server string, i imageInfo, p *plan) error {
	if d.kept.suited(rootOf{server, i.Base}, false) {
		i.Base = "" // an instance of ours had it when it was frozen
	}
	err := d.fits(i)
	if err == nil {
		err = i.suits(p)
	}
	if err != nil {
		return fmt.Errorf("the memory in its state does not fit here: %w", err)
	}
	return nil
}

// anew is what else can be done where a memory does not fit.
func (r stateRecord) anew(server string) string {
	if len(r.Dirs) == 0 {
		return ""
	}
	return fmt.Sprintf(", or set servers.%s.fork: files, so that the server begins anew on its directories", server)
}

// cpuFeatures are what the CPU here can and programs look for. What the kernel
// adds of its own is of the kernel.
var cpuFeatures = sync.OnceValue(func() []string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil
	}
	return parseFeatures(info, runtime.GOARCH)
})

// wordsX86 begin the names of features that programs on x86 choose their code by.
var wordsX86 = []string{
	"sse", "ssse", "avx", "aes", "vaes", "sha", "bmi", "amx", "xsave", "fma", "f16c", "popcnt", "abm", "movbe", "movdir", "adx",
	"rdrand", "rdseed", "rdpid", "rdtscp", "pclmulqdq", "vpclmulqdq", "gfni", "erms", "fsrm", "fsgsbase", "cx16", "lahf_lm",
	"pku", "ospke", "clflushopt", "clwb", "waitpkg", "serialize", "xgetbv1", "mmx", "3dnow", "tbm", "xop",
}

func parseFeatures(info []byte, arch string) []string {
	key := "flags"
	if arch == "arm64" {
		key = "Features"
	}
	for line := range bytes.Lines(info) {
		name, list, ok := strings.Cut(string(line), ":")
		if !ok || strings.TrimSpace(name) != key {
			continue
		}
		all := strings.Fields(list)
		if arch != "arm64" {
			all = slices.DeleteFunc(all, func(f string) bool {
				return !slices.ContainsFunc(wordsX86, func(w string) bool { return strings.HasPrefix(f, w) })
			})
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	return nil
}
