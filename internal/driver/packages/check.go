package packages

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tine-mcp/tine/internal/driver"
)

// A Program is a program that MCP servers are commonly run with.
type Program struct {
	name    string
	names   []string // of the executable; the first that works counts
	major   int      // the least version
	minor   int
	install string
}

// Programs are what servers from npm and PyPI are run with.
var Programs = []Program{
	{"node", []string{"node"}, 18, 0, "install Node.js 18 or newer; servers from npm run with it"},
	{"npx", []string{"npx"}, 0, 0, "install Node.js with npm; servers from npm are started with npx"},
	{"python", []string{"python3", "python", "py"}, 3, 10, "install Python 3.10 or newer; servers from PyPI run with it"},
	{"uv", []string{"uv"}, 0, 0, "install uv; it brings uvx, which starts servers from PyPI"},
	{"uvx", []string{"uvx"}, 0, 0, "install uv; it brings uvx, which starts servers from PyPI"},
}

var versionNumber = regexp.MustCompile(`([0-9]+)\.([0-9]+)(\.[0-9]+)?`)

// Check looks for the program on PATH and asks for its version.
func (p Program) Check(ctx context.Context) driver.Finding {
	f := driver.Finding{Name: p.name, Status: driver.FoundMissing, Detail: "not found on PATH", Mend: p.install}
	for _, name := range p.names {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		text, err := driver.Output(ctx, path, "--version")
		if err != nil {
			f.Status, f.Detail = driver.FoundWarn, fmt.Sprintf("%s does not run: %v", path, err)
			continue // a shim may stand before a program that works
		}
		m := versionNumber.FindStringSubmatch(text)
		if m == nil {
			f.Status, f.Detail = driver.FoundWarn, fmt.Sprintf("%s says its version is %q", path, driver.Brief(text))
			continue
		}
		major, _ := strconv.Atoi(m[1])
		minor, _ := strconv.Atoi(m[2])
		if major < p.major || major == p.major && minor < p.minor {
			f.Status, f.Detail = driver.FoundWarn, fmt.Sprintf("%s is version %s, which is old", path, m[0])
			continue
		}
		return driver.Finding{Name: p.name, Status: driver.FoundOK, Detail: m[0] + " at " + path}
	}
	return f
}

// Check looks for what fetches the packages of a server, which is not the npx or uvx
// that its command names. what is empty where it is there; needed is false where the
// command needs no packages.
func Check(command string, args []string, key string) (what, mend string, needed bool) {
	w, needed, err := Parse(command, args)
	if !needed {
		return "", "", false
	}
	if err != nil {
		return err.Error(), "mend " + key + ".args", true
	}
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { _, err := exec.LookPath(name); return err == nil })
	}
	switch {
	case strings.ContainsAny(w.Tool, `/\`):
		// Its own folder is looked in first.
	case w.Kind == NPM && !has("node"):
		return "its packages come from npm, and node is not found on PATH", "install Node.js with npm", true
	case w.Kind == NPM && !has("npm", "npx"):
		return "its packages come from npm, which is not found on PATH", "install npm", true
	case w.Kind == Python && !has("uv", "python3", "python"):
		return "its packages come from PyPI, and neither uv nor Python is found on PATH", "install uv, or Python with venv", true
	}
	return "", "", true
}
