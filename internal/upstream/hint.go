package upstream

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/tine-mcp/tine/internal/driver"
)

// maxHinted is how much of the end of a log is searched for known faults.
const maxHinted = 8 << 10

// hints hold for a program of any driver.
var hints = driver.Hints{
	{Says: regexp.MustCompile(`(?:ImportError: cannot import name .* from 'mcp[.\w]*'|No module named 'mcp\.[.\w]+'|module 'mcp[.\w]*' has no attribute|'(?:Server|FastMCP)' object has no attribute '(?:list_|read_resource|call_tool|get_prompt|set_logging_level|request_context))`), Mend: pinMCP},
	{Says: regexp.MustCompile(`(?i)requires[- ]?(?:a newer )?python[\s:'"]{0,8}((?:[<>=!~]=?\s*\d[\d.*]*,?\s*)+)|requires a different Python: \S+ not in '([^'\n]+)'|does not satisfy Python\s*((?:[<>=!~]=?\s*\d[\d.*]*,?\s*)+)|ImportError: cannot import name '\w+' from '(?:typing|datetime|enum|asyncio|collections\.abc)'|No module named 'tomllib'|module 'asyncio' has no attribute 'TaskGroup'|(?m)^SyntaxError: `), Mend: newerPython},
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
