//go:build linux && amd64

package main

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/bpf"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/runsc/boot/filter"
	"gvisor.dev/gvisor/runsc/boot/filter/config"
)

var update = flag.Bool("update", false, "write filter_amd64.json anew")

// TestFilter holds that the filter that comes with the binary is of this gVisor, that
// gVisor finds it for our sandboxes, and that it allows what one that is compiled now
// allows. After a change of gVisor's version:
// go test ./cmd/tine-sandbox -run TestFilter -update
func TestFilter(t *testing.T) {
	systrap, err := platform.Lookup("systrap")
	if err != nil {
		t.Fatal(err)
	}
	opts := config.Options{Platform: systrap.PrecompiledSeccompInfo()[0], HostFilesystem: true, ControllerFD: 7}
	name := opts.ConfigKey()
	all, err := config.PrecompiledPrograms()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(all, func(p precompiledseccomp.Program) bool { return p.Name == name })
	if at < 0 {
		t.Fatalf("gVisor compiles no filter for %s", name)
	}
	// A test's build says nothing of its modules.
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "gvisor.dev/gvisor").Output()
	if err != nil {
		t.Fatal(err)
	}
	version := strings.TrimSpace(string(out))
	if *update {
		data, err := json.Marshal(compiled{version, all[at]})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("filter_amd64.json", append(data, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	knowFilter("v0.0.0-other")
	if _, ok := filter.GetPrecompiled(name); ok {
		t.Fatal("another gVisor uses the filter")
	}
	knowFilter(version)
	ours, ok := filter.GetPrecompiled(name)
	if !ok {
		t.Fatalf("this gVisor (%s) does not use filter_amd64.json; write it anew with -update", version)
	}
	judges := [2]bpf.Program{}
	for i, p := range []precompiledseccomp.Program{ours, all[at]} {
		insns, err := p.RenderInstructions(opts.Vars())
		if err != nil {
			t.Fatal(err)
		}
		if judges[i], err = bpf.Compile(insns, false); err != nil {
			t.Fatal(err)
		}
	}
	args := []uint64{0, 1, 2, 3, 5, 7, 0x80, 0x81, 0x4040, 0xd0f00, 1 << 32, uint64(os.Getpid()), ^uint64(0)}
	rng := rand.New(rand.NewPCG(1, 1))
	for n := range 600 * 200 {
		data := binary.NativeEndian.AppendUint32(nil, uint32(n/200)) // the number of the system call
		data = binary.NativeEndian.AppendUint32(data, seccomp.LINUX_AUDIT_ARCH)
		for range 7 { // where it came from, and its arguments
			data = binary.NativeEndian.AppendUint64(data, args[rng.IntN(len(args))])
		}
		var says [2]uint32
		for i, p := range judges {
			if says[i], err = bpf.Exec[bpf.NativeEndian](p, data); err != nil {
				t.Fatal(err)
			}
		}
		if says[0] != says[1] {
			t.Fatalf("system call %d: %#x, compiled now %#x: % x", n/200, says[0], says[1], data)
		}
	}
}
