//go:build unix

package layout

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// fake makes a host: "a -> b" is a link, "a/" a directory, anything else a file
// with what follows "=" in it.
func fake(t *testing.T, lines ...string) host {
	t.Helper()
	h := host{root: t.TempDir()}
	for _, line := range lines {
		h.add(t, line)
	}
	return h
}

func (h host) add(t *testing.T, line string) {
	t.Helper()
	name, text, _ := strings.Cut(line, "=")
	from, to, isLink := strings.Cut(name, " -> ")
	at := h.at(from)
	err := os.MkdirAll(filepath.Dir(at), 0o755)
	switch {
	case err != nil:
	case isLink:
		err = os.Symlink(to, at)
	case strings.HasSuffix(name, "/"):
		err = os.MkdirAll(at, 0o755)
	default:
		err = os.WriteFile(at, []byte(text), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// machine is a usual host, with merged /usr.
func machine(t *testing.T, more ...string) host {
	return fake(t, append([]string{
		"/usr/bin/python3 -> python3.11", "/usr/bin/python3.11=\x7fELF", "/usr/bin/node=\x7fELF", "/usr/bin/env=\x7fELF", "/usr/bin/tool=\x7fELF", "/usr/lib/python3.11/os.py", "/usr/lib64/",
		"/bin -> usr/bin", "/sbin -> usr/bin", "/lib -> usr/lib", "/lib64 -> usr/lib64", "/opt/x/y", "/boot/k", "/mnt/", "/media/", "/lost+found/", "/swapfile",
		"/etc/shadow", "/etc/passwd=root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\nb:x:1001:1001::/data/homes/b:/bin/sh\nd:x:1002:1002::/var/lib/d:/bin/sh\n", "/etc/group", "/etc/ssl/certs/c.pem", "/etc/ssl/private/k", "/etc/ld.so.cache",
		"/etc/localtime -> /usr/share/zoneinfo/UTC", "/usr/share/zoneinfo/UTC", "/etc/machine-id", "/etc/ssh/ssh_host_rsa_key", "/etc/resolv.conf -> ../run/systemd/resolve/stub", "/run/systemd/resolve/stub",
		"/var/run -> /run", "/var/lib/dpkg/status", "/var/lib/docker/x", "/var/log/messages", "/var/tmp/x", "/var/cache/", "/var/lib/d/",
		"/proc/1/", "/sys/x", "/dev/null", "/tmp/", "/srv/data/a", "/root/.ssh/id",
		"/home/me/.ssh/id", "/home/me/.netrc", "/home/me/.config/gh/hosts.yml", "/home/me/notes", "/home/other/x", "/data/homes/b/x",
		"/home/me/.local/state/tine/sandbox/packages/p-1/bin/srv=\x7fELF",
	}, more...)...)
}

const stateDir = "/home/me/.local/state/tine"

func wanted(h host, command string, args ...string) Wanted {
	return Wanted{Command: command, Args: args, Homes: h.homes("/home/me"), Hide: []string{stateDir}, UID: 1000, GID: 1000, host: h}
}

func plan(t *testing.T, w Wanted) *Layout {
	t.Helper()
	l, err := Plan(w)
	if err != nil {
		t.Fatal(err)
	}
	l.check(t)
	return l
}

// check holds what is so of every layout: parents come first, nothing lies below
// a link or a file, and what lies in a bind has its place there.
func (l *Layout) check(t *testing.T) {
	t.Helper()
	seen := map[string]control.Part{}
	for _, p := range l.Parts {
		if _, twice := seen[p.Path]; twice {
			t.Errorf("%s is there twice", p.Path)
		}
		for outer, o := range seen {
			if within(p.Path, outer) {
				t.Errorf("%s comes after %s", p.Path, outer)
			}
			if !within(outer, p.Path) || o.Source == "" && o.Link == "" && !o.File {
				continue
			}
			if o.Link != "" || o.File {
				t.Errorf("%s is in %s, which is no directory", p.Path, outer)
			} else if p.Source == "" {
				t.Errorf("%s can't be made in %s, which is read-only", p.Path, outer)
			}
		}
		seen[p.Path] = p
	}
}

// show says what is at a path: "-> x" of a link, "text", "dir", or the path of
// the host; empty for nothing.
func (l *Layout) show(h host, p string) string {
	var best *control.Part
	for i, part := range l.Parts {
		if within(part.Path, p) && (best == nil || len(part.Path) > len(best.Path)) {
			best = &l.Parts[i]
		}
	}
	for _, m := range l.Masks {
		if within(m, p) {
			return "masked"
		}
	}
	if best == nil || best.Path != p && best.Source == "" {
		for _, part := range l.Parts {
			if within(p, part.Path) {
				return "dir"
			}
		}
		return ""
	}
	switch {
	case best.Link != "":
		return "-> " + best.Link
	case best.File:
		return "text"
	case best.Source == "":
		return "dir"
	}
	at := below(best.Source, best.Path, p)
	if _, err := h.lstat(at); err != nil {
		return ""
	}
	return at
}

func (l *Layout) want(t *testing.T, h host, shown map[string]string) {
	t.Helper()
	for p, want := range shown {
		if got := l.show(h, p); got != want {
			t.Errorf("%s is %q, want %q", p, got, want)
		}
	}
	if t.Failed() {
		for _, p := range l.Parts {
			t.Logf("%+v", p)
		}
		t.Log(l.Masks)
	}
}

func (l *Layout) part(p string) *control.Part {
	i := slices.IndexFunc(l.Parts, func(part control.Part) bool { return part.Path == p })
	if i < 0 {
		return nil
	}
	return &l.Parts[i]
}
