package sandbox

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/driver"
)

// hints are about walls that a program runs into.
var hints = driver.Hints{
	{Says: regexp.MustCompile(`EAI_AGAIN|ENETUNREACH|ENOTFOUND|Temporary failure in name resolution|(?i:network is unreachable)|Name or service not known|Could not resolve host|lookup \S+ on \S+:53`), Mend: giveNetwork},
	{Says: regexp.MustCompile(`(?:ENOENT: no such file or directory|EACCES: permission denied), \w+ '(/[^'\n]+)'`), Mend: showPath},
	{Says: regexp.MustCompile(`(?:No such file or directory|Permission denied): '(/[^'\n]+)'`), Mend: showPath},
	{Says: regexp.MustCompile(`(?:can't open file|cannot access|cannot open|Cannot find module) '(/[^'\n]+)'`), Mend: showPath},
	{Says: regexp.MustCompile(`(?:open|stat|lstat|chdir|mkdir|readlink|fork/exec) (/[^\s:]+): (?:no such file or directory|permission denied)`), Mend: showPath},
}

func giveNetwork(spec driver.Spec, _ []string) string {
	switch box := options(spec); {
	case box == nil || box.Network == NetworkHost:
		return ""
	case len(box.Domains) > 0:
		return fmt.Sprintf("it reaches what servers.%s.sandbox.network lists, and only through the proxy that HTTPS_PROXY names; tell it the proxy by its own option, or set network: host", spec.Server)
	}
	return fmt.Sprintf("a sandbox has no network; list what it needs, as in servers.%s.sandbox.network: [api.example.com], or set network: host", spec.Server)
}

// inside are folders of which a sandbox sees what there is on this machine, or has
// its own.
var inside = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/proc", "/dev", "/sys", "/tmp", "/home/user", "/workspace", "/state", "/tine-packages"}

func showPath(spec driver.Spec, found []string) string {
	box, at := options(spec), path.Clean(found[1])
	if box == nil || box.Root != "" && box.Root != RootAllow && box.Root != RootHost {
		return ""
	}
	below := func(dirs []string) bool {
		return slices.ContainsFunc(dirs, func(dir string) bool { return dir == at || strings.HasPrefix(at, strings.TrimSuffix(dir, "/")+"/") })
	}
	switch {
	case below(box.DenyRead):
		return fmt.Sprintf("servers.%s.sandbox.deny_read hides %s", spec.Server, at)
	case below(inside), below(box.AllowRead), below(box.AllowWrite), box.Root == RootHost:
		return ""
	}
	return fmt.Sprintf("the sandbox does not show %s; if it is on this machine, add it, or its folder, to servers.%s.sandbox.allow_read (allow_write where the server writes to it)", at, spec.Server)
}
