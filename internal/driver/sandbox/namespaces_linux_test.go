//go:build amd64 || arm64

package sandbox

import (
	"strings"
	"testing"
)

func TestNamespaceSetting(t *testing.T) {
	const (
		most     = "/proc/sys/user/max_user_namespaces"
		clone    = "/proc/sys/kernel/unprivileged_userns_clone"
		apparmor = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
	)
	for _, tt := range []struct {
		name      string
		uid       int
		settings  map[string]string
		why, mend string
	}{
		{"a plain kernel", 1000, map[string]string{most: "1000"}, "", ""},
		{"no such settings", 1000, nil, "", ""},
		{"off", 1000, map[string]string{most: "0"}, "user.max_user_namespaces is 0", "user.max_user_namespaces=10000"},
		{"for root only", 1000, map[string]string{clone: "0"}, "for root only", "kernel.unprivileged_userns_clone=1"},
		{"root, who needs none", 0, map[string]string{most: "0", clone: "0", apparmor: "1"}, "", ""},
		{"AppArmor", 1000, map[string]string{clone: "1", apparmor: "1"}, "AppArmor", "kernel.apparmor_restrict_unprivileged_userns=0"},
	} {
		why, mend := namespaceSetting(tt.uid, func(p string) string { return tt.settings[p] })
		if !strings.Contains(why, tt.why) || !strings.Contains(mend, tt.mend) || (why == "") != (tt.why == "") || (mend == "") != (tt.mend == "") {
			t.Errorf("%s: %q, %q", tt.name, why, mend)
		}
	}
}
