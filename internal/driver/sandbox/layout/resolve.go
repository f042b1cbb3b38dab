package layout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// askTime is how long a tool that keeps versions may take to answer.
const askTime = 10 * time.Second

// shim is the line with which a shim hands over to its tool.
var shim = regexp.MustCompile(`(?m)^\s*exec\s+"?([^"\s]*?([a-z]*env|asdf))"?\s+exec\b`)

// linkedShims are programs that shims are links to, and the tool to ask.
var linkedShims = map[string]string{"volta-shim": "volta", "mise": "mise", "rtx": "rtx", "asdf": "asdf"}

// Resolve finds the program that a command really is: a name is looked up in PATH
// of env, and a shim of a tool that keeps versions (pyenv, asdf, volta, mise and
// their like) is the program that the tool says. Links are left as they are, for
// a program may be another one under another name. With it come folders that the
// program needs besides.
func Resolve(command string, env []string) (string, []string, error) {
	h := host{}
	at := command
	if !strings.Contains(command, "/") {
		if at = h.find(command, lookup(env, "PATH")); at == "" {
			return "", nil, fmt.Errorf("command %q is not found on PATH; install it, or give its path", command)
		}
	}
	if !path.IsAbs(at) {
		return "", nil, fmt.Errorf("command %q is not a whole path; begin it with /, or give a name that is on PATH", command)
	}
	var err error
	for range maxScripts {
		tool := h.shimOf(at)
		if tool == "" {
			break
		}
		if at, err = ask(tool, path.Base(at), env); err != nil {
			return "", nil, fmt.Errorf("command %q: %w", command, err)
		}
	}
	real, info, err := h.stat(at)
	if err != nil {
		return "", nil, fmt.Errorf("command %q can't be looked at: %w", command, err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return "", nil, fmt.Errorf("command %q is not a program: %s", command, real)
	}
	// What Plan would find by the path, for a caller that shows it elsewhere.
	p := &planner{w: Wanted{Command: at, Env: env, Homes: h.homes(lookup(env, "HOME"))}}
	p.needs(at, 0)
	var reads []string
	for _, w := range p.wishes {
		if real, info, err := h.stat(w.path); err == nil && info.IsDir() && !p.broad(real) {
			reads = append(reads, real)
		}
	}
	slices.Sort(reads)
	reads = slices.Compact(reads)
	return at, slices.DeleteFunc(reads, func(dir string) bool {
		return slices.ContainsFunc(reads, func(outer string) bool { return outer != "" && outer != dir && within(outer, dir) })
	}), nil
}

// Find looks a program up in the PATH of another root, and returns its path there.
func Find(dir, name, dirs string) (string, error) {
	real, _, err := host{}.real(filepath.ToSlash(dir))
	if err != nil {
		return "", fmt.Errorf("look for the command %q: %w", name, err)
	}
	h := host{root: real}
	if strings.Contains(name, "/") {
		if at := path.Join("/", name); h.isFile(at) {
			return at, nil
		}
	} else if at := h.find(name, dirs); at != "" {
		return at, nil
	}
	return "", fmt.Errorf("command %q is not found in the root; give a path that is in it, or use another root", name)
}

// shimOf is the tool that a shim belongs to; empty for what is none.
func (h host) shimOf(at string) string {
	real, _, err := h.real(at)
	if err != nil {
		return ""
	}
	if tool, ok := linkedShims[path.Base(real)]; ok && path.Base(real) != path.Base(at) {
		if beside := path.Join(path.Dir(real), tool); h.isFile(beside) {
			return beside
		}
		return tool
	}
	head, err := h.head(real, 4096)
	if err != nil || !bytes.HasPrefix(head, []byte("#!")) || path.Base(path.Dir(at)) != "shims" && path.Base(path.Dir(real)) != "shims" {
		return ""
	}
	if m := shim.FindSubmatch(head); m != nil {
		return string(m[1])
	}
	return ""
}

// ask lets a tool say where a program is.
func ask(tool, name string, env []string) (string, error) {
	if !path.IsAbs(tool) {
		found := host{}.find(tool, lookup(env, "PATH"))
		if found == "" {
			return "", fmt.Errorf("it is a shim of %s, which is not found on PATH; give the path of the program itself", tool)
		}
		tool = found
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, "which", name)
	cmd.Env, cmd.Dir = env, "/"
	if dir := lookup(env, "PWD"); filepath.IsAbs(dir) && (host{}).isDir(dir) {
		cmd.Dir = dir
	}
	cmd.WaitDelay = time.Second
	var out, errs limited
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	at := strings.TrimSpace(out.String())
	if err == nil && !path.IsAbs(at) {
		err = errors.New("it names no path")
	}
	if err != nil {
		why := strings.Join(strings.Fields(errs.String()), " ")
		return "", fmt.Errorf("%s which %s: %w: %.200s; install that version, or give the path of the program itself", tool, name, err, why)
	}
	return at, nil
}

// limited keeps the first of what is written to it.
type limited struct{ bytes.Buffer }

func (l *limited) Write(b []byte) (int, error) {
	if room := 8192 - l.Len(); room > 0 {
		l.Buffer.Write(b[:min(room, len(b))])
	}
	return len(b), nil
}
