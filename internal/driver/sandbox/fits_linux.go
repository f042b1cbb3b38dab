//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/tine-mcp/tine/internal/driver"
)

// unfit is why a memory will never go on here, unlike what may be mended.
type unfit struct{ error }

func (u unfit) Unwrap() []error { return []error{u.error, driver.ErrUnfit} }

// fits says why a memory can't go on here; nil where it can.
func (d *Driver) fits(i imageInfo) error {
	if i.Arch != runtime.GOARCH {
		return unfit{fmt.Errorf("it was made on another kind of machine (%s, and this is %s); make it again here", i.Arch, runtime.GOARCH)}
	}
	here := cpuFeatures()
	var lacks []string
	for _, f := range i.CPU {
		if !slices.Contains(here, f) {
			lacks = append(lacks, f)
		}
	}
	if len(lacks) > 0 {
		return unfit{fmt.Errorf("it was made on another CPU, and the CPU here lacks %s; make it again here", strings.Join(lacks, ", "))}
	}
	_, err := d.helpers.reads(i.Runsc, i.GVisor)
	return err
}

// suits says why a memory is not one of what a sandbox would be made of now; nil
// where it is. A digest that is empty is not known.
func (i imageInfo) suits(base, program string) error {
	switch {
	case base != "" && i.Base != "" && base != i.Base:
		return unfit{errors.New("the root has changed since it was made (the program or its packages, what is installed on the system, or sandbox.root, allow_read, allow_write or deny_read in the config); make it again")}
	case program != "" && i.Program != "" && program != i.Program:
		return unfit{errors.New("the server is another program since it was made (its command, its user, its directories or its network); make it again")}
	}
	return nil
}

// goesOn looks that a spec can go on from the memory of a snapshot. What the
// program is can't be told yet, for the workspace is not known before the start,
// which looks again. To put the root together takes some milliseconds, and is done
// for the first of many.
func (d *Driver) goesOn(ctx context.Context, spec driver.Spec, r stateRecord) error {
	if d.Carries(spec) != driver.CarryMemory {
		return unfit{fmt.Errorf("it has the memory of the server, which can't go on from it on the network of the host; set servers.%s.sandbox.network to what it was%s", spec.Server, r.anew(spec.Server))}
	}
	err := d.fits(*r.Image)
	known := rootOf{spec.Server, r.Image.Base}
	if err == nil && !d.kept.suited(known, false) {
		base, _, planErr := d.digests(ctx, spec)
		if planErr != nil { // which Start will say
			return ctx.Err()
		}
		if err = r.Image.suits(base, ""); err == nil {
			d.kept.suited(known, true)
		}
	}
	if err != nil {
		return fmt.Errorf("%w%s", err, r.anew(spec.Server))
	}
	return nil
}

// continues looks that an instance can go on from the memory in its state, which
// may have been there for long.
func (d *Driver) continues(server string, i imageInfo, p *plan) error {
	err := d.fits(i)
	if err == nil {
		base := p.base
		if d.kept.suited(rootOf{server, i.Base}, false) {
			base = "" // an instance of ours had it when it was frozen
		}
		err = i.suits(base, p.program())
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
