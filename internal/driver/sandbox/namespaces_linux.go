//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"os"
	"strings"
)

// namespaceSetting says which setting of the kernel keeps a user from making sandboxes,
// and what to do; empty where none does.
func namespaceSetting(uid int, setting func(string) string) (why, mend string) {
	if uid == 0 {
		return "", "" // root needs no user namespace
	}
	for _, s := range []struct{ name, is, why, want string }{
		{"user.max_user_namespaces", "0", "user namespaces are switched off", "10000"},
		{"kernel.unprivileged_userns_clone", "0", "user namespaces are for root only", "1"},
		{"kernel.apparmor_restrict_unprivileged_userns", "1", "AppArmor restricts user namespaces", "0"},
	} {
		if setting("/proc/sys/"+strings.ReplaceAll(s.name, ".", "/")) == s.is {
			return fmt.Sprintf("%s (sysctl %s is %s)", s.why, s.name, s.is), fmt.Sprintf("sysctl -w %s=%s, or run Tine as root", s.name, s.want)
		}
	}
	return "", ""
}

// readSetting reads a kernel setting, empty when this kernel has no such.
func readSetting(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}
