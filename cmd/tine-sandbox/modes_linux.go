//go:build linux && (amd64 || arm64)

package main

import (
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/seccomp"
)

// forbidModes lets neither this process nor a sandbox that it makes set the setuid or
// setgid bit of a host file: what a program writes to a directory of the host belongs
// to the gateway's user there.
func forbidModes() error {
	with := func(before ...seccomp.ValueMatcher) seccomp.SyscallRule {
		var either seccomp.Or
		for _, bit := range []uintptr{unix.S_ISUID, unix.S_ISGID} {
			var rule seccomp.PerArg
			rule[copy(rule[:], before)] = seccomp.MaskedEqual(bit, bit)
			either = append(either, rule)
		}
		return either
	}
	any, create := seccomp.AnyValue{}, seccomp.MaskedEqual(unix.O_CREAT, unix.O_CREAT)
	p := &seccomp.Program{
		RuleSets: []seccomp.RuleSet{{
			Action: seccomp.ReturnError.Code(uint16(unix.EPERM)),
			Rules: seccomp.MakeSyscallRules(map[uintptr]seccomp.SyscallRule{
				unix.SYS_FCHMOD:    with(any),
				unix.SYS_FCHMODAT:  with(any, any),
				unix.SYS_FCHMODAT2: with(any, any),
				unix.SYS_MKDIRAT:   with(any, any),
				unix.SYS_MKNODAT:   with(any, any),
				unix.SYS_OPENAT:    with(any, any, create),
			}),
		}},
		Options: seccomp.ProgramOptions{DefaultAction: seccomp.Allow, BadArchAction: seccomp.Allow},
	}
	return p.Install()
}
