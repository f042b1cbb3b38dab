package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/family"
)

// products names what to install for commands that configs use a lot.
var products = map[string]string{
	"npx": "Node.js", "node": "Node.js", "npm": "Node.js",
	"uvx": "uv", "uv": "uv",
	"python": "Python", "python3": "Python",
	"docker": "Docker",
	"bunx":   "Bun", "bun": "Bun", "deno": "Deno",
	"pipx": "pipx", "pnpm": "pnpm", "go": "Go", "java": "Java", "dotnet": ".NET",
}

// lookup finds the program of a spec: a path from its cwd, or a name on the PATH
// that the child will have.
func lookup(spec driver.Spec, env *family.Environment, m *mount) (string, error) {
	if spec.Command == "" {
		return "", fmt.Errorf("no command is given; set servers.%s.command", spec.Server)
	}
	if strings.ContainsRune(spec.Command, 0) {
		return "", fmt.Errorf("command %q has a zero byte in it; mend servers.%s.command", spec.Command, spec.Server)
	}
	if strings.ContainsAny(spec.Command, pathSeparators) {
		return lookupPath(spec, env, m)
	}
	// Folders that are relative would be looked up from wherever the gateway
	// happens to run.
	for _, dir := range filepath.SplitList(env.Get("PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if path, err := runnable(filepath.Join(dir, spec.Command), env); err == nil {
			return path, nil
		}
	}
	where := "PATH"
	if _, ok := spec.Env["PATH"]; ok {
		where = fmt.Sprintf("the PATH of servers.%s.env", spec.Server)
	}
	mend := fmt.Sprintf("install it or set servers.%s.command to its full path", spec.Server)
	if product, ok := products[spec.Command]; ok {
		mend = fmt.Sprintf("install %s or set servers.%s.command to its full path", product, spec.Server)
	}
	return "", fmt.Errorf("command %q not found on %s; %s", spec.Command, where, mend)
}

func lookupPath(spec driver.Spec, env *family.Environment, m *mount) (string, error) {
	path := spec.Command
	if !filepath.IsAbs(path) && spec.Cwd != "" {
		path = filepath.Join(spec.Cwd, path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find command %q: %w", spec.Command, err)
	}
	found, err := runnable(m.outside(path), env)
	switch {
	case err == nil && m.outside(path) != path:
		return path, nil
	case err == nil:
		return found, nil
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("command %q does not exist; mend servers.%s.command", path, spec.Server)
	case errors.Is(err, syscall.EISDIR):
		return "", fmt.Errorf("command %q is a folder; mend servers.%s.command", path, spec.Server)
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("command %q may not be run; make it executable (chmod +x) or mend servers.%s.command", path, spec.Server)
	}
	return "", fmt.Errorf("find command %q: %w", path, err)
}

func checkCwd(spec driver.Spec, m *mount) error {
	if spec.Cwd == "" {
		return nil
	}
	st, err := os.Stat(m.outside(spec.Cwd))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return driver.Final(fmt.Errorf("folder %q does not exist; make it or change servers.%s.cwd", spec.Cwd, spec.Server))
	case err != nil:
		return fmt.Errorf("look at servers.%s.cwd: %w", spec.Server, err)
	case !st.IsDir():
		return driver.Final(fmt.Errorf("%q is not a folder; change servers.%s.cwd", spec.Cwd, spec.Server))
	}
	return nil
}

// startError explains a program that is there and still did not start.
func startError(spec driver.Spec, path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist) && !errors.As(err, new(*fs.PathError)):
		return driver.Final(fmt.Errorf("command %q can't be run: the interpreter that its first line names is missing; install it or change servers.%s.command: %w", path, spec.Server, err))
	case errors.Is(err, errNotAProgram):
		return driver.Final(fmt.Errorf("command %q is not a program for this machine; a script must begin with a line such as #!/bin/sh; mend it or servers.%s.command: %w", path, spec.Server, err))
	}
	return fmt.Errorf("start %q: %w", path, err)
}
