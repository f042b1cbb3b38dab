package upstream

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
)

// maxHinted is how much of the end of a log is looked at for what is wrong.
const maxHinted = 8 << 10

// A hint is what can be done about a failure that a program tells in its log.
type hint struct {
	says *regexp.Regexp
	// mend is what to do; empty where that is not the reason here. found is what the
	// log says, and of it the groups.
	mend func(spec driver.Spec, found []string) string
}

// hints are tried in this order, and the first that knows what to do is given.
var hints = []hint{
	{regexp.MustCompile(`(?:ImportError: cannot import name .* from 'mcp[.\w]*'|No module named 'mcp\.[.\w]+'|module 'mcp[.\w]*' has no attribute|'(?:Server|FastMCP)' object has no attribute '(?:list_|read_resource|call_tool|get_prompt|set_logging_level|request_context))`), pinMCP},
	{regexp.MustCompile(`(?i)requires[- ]?(?:a newer )?python[\s:'"]{0,8}((?:[<>=!~]=?\s*\d[\d.*]*,?\s*)+)|requires a different Python: \S+ not in '([^'\n]+)'|does not satisfy Python\s*((?:[<>=!~]=?\s*\d[\d.*]*,?\s*)+)|ImportError: cannot import name '\w+' from '(?:typing|datetime|enum|asyncio|collections\.abc)'|No module named 'tomllib'|module 'asyncio' has no attribute 'TaskGroup'|(?m)^SyntaxError: `), newerPython},
	{regexp.MustCompile(`EAI_AGAIN|ENETUNREACH|ENOTFOUND|Temporary failure in name resolution|(?i:network is unreachable)|Name or service not known|Could not resolve host|lookup \S+ on \S+:53`), giveNetwork},
	{regexp.MustCompile(`(?:ENOENT: no such file or directory|EACCES: permission denied), \w+ '(/[^'\n]+)'`), showPath},
	{regexp.MustCompile(`(?:No such file or directory|Permission denied): '(/[^'\n]+)'`), showPath},
	{regexp.MustCompile(`(?:can't open file|cannot access|cannot open|Cannot find module) '(/[^'\n]+)'`), showPath},
	{regexp.MustCompile(`(?:open|stat|lstat|chdir|mkdir|readlink|fork/exec) (/[^\s:]+): (?:no such file or directory|permission denied)`), showPath},
}

// hintFor is what can be done about what a server says in its log; empty where that
// is not known.
func hintFor(spec driver.Spec, text string) string {
	for _, h := range hints {
		all := h.says.FindAllStringSubmatch(text, -1)
		slices.Reverse(all) // the last one is what it ended of
		for _, found := range all {
			if mend := h.mend(spec, found); mend != "" {
				return mend
			}
		}
	}
	return ""
}

// ofPackage reports whether a spec runs a package of Python.
func ofPackage(spec driver.Spec) bool {
	name := path.Base(spec.Command)
	return name == "uvx" || name == "uv" || name == "pipx"
}

func pinMCP(spec driver.Spec, _ []string) string {
	const why = "it is made for version 1 of the package mcp, and found version 2 or later; "
	if ofPackage(spec) {
		return fmt.Sprintf(why+"put --with, 'mcp<2' before the package in servers.%s.args, as in uvx --with 'mcp<2' PACKAGE", spec.Server)
	}
	return why + "install 'mcp<2' where it runs, as with pip install 'mcp<2'"
}

func newerPython(spec driver.Spec, found []string) string {
	need := "a newer Python"
	for _, group := range found[1:] {
		if group = strings.Trim(strings.TrimSpace(group), ","); group != "" {
			need = "Python " + group
		}
	}
	if strings.HasPrefix(found[0], "SyntaxError") {
		need = "perhaps a newer Python"
	}
	if ofPackage(spec) {
		return fmt.Sprintf("it needs %s; name one that is installed with --python VERSION in servers.%s.args, as in uvx --python 3.13 PACKAGE", need, spec.Server)
	}
	return fmt.Sprintf("it needs %s; name that one in servers.%s.command", need, spec.Server)
}

func giveNetwork(spec driver.Spec, _ []string) string {
	switch box := driver.Options[config.Sandbox](spec); {
	case box == nil || box.Network == config.NetworkHost:
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
	box, at := driver.Options[config.Sandbox](spec), path.Clean(found[1])
	if box == nil || box.Root != "" && box.Root != config.RootAllow && box.Root != config.RootHost {
		return ""
	}
	below := func(dirs []string) bool {
		return slices.ContainsFunc(dirs, func(dir string) bool { return dir == at || strings.HasPrefix(at, strings.TrimSuffix(dir, "/")+"/") })
	}
	switch {
	case below(box.DenyRead):
		return fmt.Sprintf("servers.%s.sandbox.deny_read hides %s", spec.Server, at)
	case below(inside), below(box.AllowRead), below(box.AllowWrite), box.Root == config.RootHost:
		return ""
	}
	return fmt.Sprintf("the sandbox does not show %s; if it is on this machine, add it, or its folder, to servers.%s.sandbox.allow_read (allow_write where the server writes to it)", at, spec.Server)
}
