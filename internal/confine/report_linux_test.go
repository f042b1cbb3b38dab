package confine

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReport(t *testing.T) {
	none := kernel{landlock: "this kernel has no Landlock, as Linux has since 5.13", filter: "there is no filter for mips", threads: true}
	at := func(abi int) kernel {
		return kernel{abi: abi, seccomp: true, threads: true, signals: abi >= abiThreads}
	}
	cgo := func(abi int) kernel { k := at(abi); k.threads = false; return k }
	for _, tt := range []struct {
		name           string
		kernel         kernel
		rules          Rules
		complete       bool
		holds, missing string // words that must be there; with - those that must not
	}{
		{"nothing", none, Rules{}, false, "", "access to files (this kernel has no Landlock, system calls (there is no filter"},
		{"no Landlock", kernel{landlock: "switched off", seccomp: true, threads: true}, Rules{}, false, "other programs", "access to files (switched off)"},
		{"the first", at(1), Rules{}, true, "renames between any two folders", "emptying a file, received TCP socket, control of devices, Unix sockets of other programs"},
		{"with truncate", at(3), Rules{}, true, "-renames", "-emptying, received TCP"},
		{"with TCP", at(4), Rules{}, true, "TCP", "-TCP, control of devices"},
		{"this year's", at(7), Rules{}, true, "device control, modes and owners", "-control, Unix sockets of other programs"},
		{"pairs", at(7), Rules{PairsOnly: true}, true, "all sockets but pairs", "-Unix"},
		{"pairs before TCP", at(2), Rules{PairsOnly: true}, true, "", "-received"},
		{"all", at(9), Rules{}, true, "Unix sockets of other programs, other programs", "-(Linux"},
		{"programs", at(9), Rules{Exec: []string{"/bin"}, Attributes: true}, true, "-modes, namespaces", "-programs"},
		{"scopes", at(9), Rules{ScopeAbstract: true, ScopeSignals: true}, true, "abstract sockets, signals to other", "-signals"},
		{"scopes that the runtime would not survive", at(7), Rules{ScopeSignals: true}, true, "-signals to other", "signals to other processes"},
		{"cgo", cgo(7), Rules{}, false, "other programs", "access to files (this program uses cgo, capabilities of root"},
		{"cgo, all threads at once", cgo(8), Rules{}, true, "files outside", "-access to files, capabilities of root"},
	} {
		r := tt.kernel.report(tt.rules)
		if r.Complete() != tt.complete {
			t.Errorf("%s: complete is %v: %s", tt.name, r.Complete(), r)
		}
		for _, side := range []struct {
			list []string
			want string
		}{{r.Holds, tt.holds}, {r.Missing, tt.missing}} {
			for word := range strings.SplitSeq(side.want, ", ") {
				word, not := strings.CutPrefix(word, "-")
				if word != "" && strings.Contains(strings.Join(side.list, ", "), word) == not {
					t.Errorf("%s: %q has %q: %v", tt.name, side.list, word, not)
				}
			}
		}
		for _, line := range slices.Concat(r.Holds, r.Missing) {
			if !strings.Contains(r.String(), line) {
				t.Errorf("%s: %q is not in %s", tt.name, line, r)
			}
		}
	}
}

func TestHandled(t *testing.T) {
	for _, tt := range []struct {
		kernel kernel
		rules  Rules
		want   unix.LandlockRulesetAttr
	}{
		{kernel{abi: 1}, Rules{ScopeSignals: true}, unix.LandlockRulesetAttr{Handled_access_fs: 1<<13 - 1}},
		{kernel{abi: 2}, Rules{}, unix.LandlockRulesetAttr{Handled_access_fs: 1<<14 - 1}},
		{kernel{abi: 3}, Rules{}, unix.LandlockRulesetAttr{Handled_access_fs: 1<<15 - 1}},
		{kernel{abi: 4}, Rules{}, unix.LandlockRulesetAttr{Handled_access_fs: 1<<15 - 1, Handled_access_net: 3}},
		{kernel{abi: 5}, Rules{ScopeAbstract: true}, unix.LandlockRulesetAttr{Handled_access_fs: 1<<16 - 1, Handled_access_net: 3}},
		{kernel{abi: 6}, Rules{ScopeAbstract: true, ScopeSignals: true}, unix.LandlockRulesetAttr{Handled_access_fs: 1<<16 - 1, Handled_access_net: 3, Scoped: 1}},
		{kernel{abi: 7, signals: true}, Rules{ScopeAbstract: true, ScopeSignals: true}, unix.LandlockRulesetAttr{Handled_access_fs: 1<<16 - 1, Handled_access_net: 3, Scoped: 3}},
		{kernel{abi: 9, signals: true}, Rules{}, unix.LandlockRulesetAttr{Handled_access_fs: 1<<17 - 1, Handled_access_net: 3}},
		{kernel{abi: 12, signals: true}, Rules{}, unix.LandlockRulesetAttr{Handled_access_fs: 1<<17 - 1, Handled_access_net: 3}},
	} {
		if got := tt.kernel.handled(tt.rules); got != tt.want {
			t.Errorf("ABI %d with %+v: %+v, want %+v", tt.kernel.abi, tt.rules, got, tt.want)
		}
	}
}
