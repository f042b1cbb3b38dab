package layout

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// system are the directories with programs and libraries.
var system = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"}

// ofEtc are what programs need of /etc, as patterns of names.
var ofEtc = []string{
	"alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld-musl-*.path",
	"ssl", "ca-certificates", "ca-certificates.conf", "pki", "crypto-policies",
	"localtime", "timezone", "locale.alias", "locale.conf",
	"nsswitch.conf", "protocols", "services", "host.conf", "gai.conf",
	"mime.types", "magic", "terminfo", "fonts",
	"os-release", "debian_version", "lsb-release", "alpine-release", "redhat-release", "system-release",
	"python3*", "java*", "perl",
}

// notOfHost are what of the top of the host no root is made of: what the sandbox
// has of its own, what is private, and what is of no use to a program.
var notOfHost = []string{
	"proc", "sys", "dev", "run", "tmp", "lost+found", "boot", "mnt", "media", "home", "root",
	"swapfile", "swap.img", "vmlinuz*", "initrd*", ".*",
}

// base makes what the mode says.
func (p *planner) base() error {
	switch p.w.Mode {
	case Host:
		return p.hostBase()
	case Dir:
		return p.dirBase()
	}
	return p.allowBase()
}

func (p *planner) allowBase() error {
	for _, dir := range system {
		p.wishes = append(p.wishes, wish{path: dir, hint: true, what: "the system"})
	}
	list, err := p.host.readDir("/etc", 10_000)
	if err != nil {
		return fmt.Errorf("look for what programs need: %w", err)
	}
	for _, e := range list {
		if matches(ofEtc, e.Name()) {
			p.wishes = append(p.wishes, wish{path: "/etc/" + e.Name(), hint: true, what: "the system"})
		}
	}
	if err := p.texts("/etc/passwd", "/etc/group", "/etc/hosts", "/etc/hostname"); err != nil {
		return err
	}
	return p.ownDirs()
}

func (p *planner) hostBase() error {
	list, err := p.host.readDir("/", maxEntries)
	if err != nil {
		return fmt.Errorf("look at the root of the host: %w", err)
	}
	for _, e := range list {
		at := "/" + e.Name()
		if matches(notOfHost, e.Name()) || slices.Contains(p.w.Homes, at) || slices.Contains([]string{p.workspace(), State}, at) {
			continue
		}
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			text, err := p.host.readlink(at)
			if err != nil {
				return fmt.Errorf("look at the root of the host: %w", err)
			}
			// Where it leads is shown where that is shown, and else not.
			err = p.tree.put(at, &node{kind: isLink, text: text})
			if err != nil {
				return fmt.Errorf("show %s: %w", at, err)
			}
		case e.IsDir() || e.Type().IsRegular():
			if err := p.tree.put(at, &node{kind: isBind, source: at, folder: e.IsDir()}); err != nil {
				return fmt.Errorf("show %s: %w", at, err)
			}
		}
	}
	return p.ownDirs()
}

func (p *planner) dirBase() error {
	real, info, err := p.host.stat(p.w.Dir)
	if err != nil {
		return fmt.Errorf("root %s can't be looked at: %w; create it, or mend the server's root", p.w.Dir, err)
	}
	switch {
	case !info.IsDir():
		return fmt.Errorf("root %s is not a directory; give one, or the archive of an image", p.w.Dir)
	case real == "/":
		return fmt.Errorf("root %s is the host's; write root: host for that", p.w.Dir)
	}
	if p.w.Image == "" {
		if s := p.denied(real, false); s != nil {
			return fmt.Errorf("root %s: %s", p.w.Dir, s.why(real))
		}
	}
	list, err := p.host.readDir(real, maxEntries)
	if err != nil {
		return fmt.Errorf("root %s: %w", p.w.Dir, err)
	}
	for _, e := range list {
		to, at := "/"+e.Name(), path.Join(real, e.Name())
		if slices.Contains([]string{"proc", "sys", "dev", "run", "tmp"}, e.Name()) {
			continue
		}
		n := &node{kind: isBind, source: at, folder: e.IsDir()}
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			text, err := p.host.readlink(at)
			if err != nil {
				return fmt.Errorf("root %s: %w", p.w.Dir, err)
			}
			n = &node{kind: isLink, text: text}
		case !e.IsDir() && !e.Type().IsRegular():
			continue
		}
		if err := p.tree.put(to, n); err != nil {
			return fmt.Errorf("root %s: %s: %w", p.w.Dir, to, err)
		}
	}
	for _, own := range []string{"/etc/passwd", "/etc/group", "/etc/hosts"} {
		if p.empty(own) {
			if err := p.texts(own); err != nil {
				return err
			}
		}
	}
	return p.ownDirs()
}

// empty reports whether a file of the root is missing or has nothing in it.
func (p *planner) empty(at string) bool {
	at, err := p.tree.resolve(at)
	if err != nil {
		return false
	}
	s, err := p.tree.look(at)
	return err == nil && (s.missing() || s.node == nil && s.info.Mode().IsRegular() && s.info.Size() == 0)
}

// workspace is where the session's directory is seen.
func (p *planner) workspace() string { return cmp.Or(p.w.Workspace, Workspace) }

// ownDirs makes the directories that every root has, and lets names be looked up.
func (p *planner) ownDirs() error {
	for _, d := range []struct {
		at   string
		mode fs.FileMode
		own  bool // nothing else may be seen there
	}{
		{"/proc", 0o755, true}, {"/dev", 0o755, true}, {"/sys", 0o755, true}, {"/run", 0o755, true},
		{"/tmp", 0o777 | fs.ModeSticky, true}, {"/var/tmp", 0o777 | fs.ModeSticky, true},
		// The helper that made the root owns all that is in it. The user inside must be
		// able to write in its home, which is kept in memory.
		{Home, 0o777, false}, {p.workspace(), 0o755, false}, {State, 0o755, false},
	} {
		if err := p.ownDir(d.at, d.mode, d.own); err != nil {
			return fmt.Errorf("make %s in the root: %w", d.at, err)
		}
	}
	if p.w.Mode == Host {
		// Sockets and locks of the host's programs, where it is no link to /run.
		for _, at := range []string{"/var/run", "/var/lock"} {
			if s, err := p.tree.look(at); err == nil && s.dir() {
				if err := p.tree.set(at, &node{mode: 0o755}); err != nil {
					return fmt.Errorf("make %s in the root: %w", at, err)
				}
			}
		}
	}
	if p.w.Network {
		p.wishes = append(p.wishes, wish{path: "/etc/resolv.conf", hint: true, what: "the system"})
	}
	return nil
}

func (p *planner) ownDir(at string, mode fs.FileMode, own bool) error {
	to, err := p.tree.resolve(at)
	if err != nil {
		return err
	}
	s, err := p.tree.look(to)
	if err != nil {
		return err
	}
	ours := s.node != nil && s.node.kind == isDir
	if s.dir() && (!own || ours && to != at) {
		return nil
	}
	return p.tree.set(to, &node{mode: mode})
}

// texts puts files of our own into the root.
func (p *planner) texts(paths ...string) error {
	for _, at := range paths {
		to, err := p.tree.resolve(at)
		if err == nil {
			err = p.tree.set(to, &node{kind: isText, text: p.text(at)})
		}
		if err != nil {
			return fmt.Errorf("make %s in the root: %w", at, err)
		}
	}
	return nil
}

func (p *planner) text(at string) string {
	uid, gid := p.w.UID, p.w.GID
	switch at {
	case "/etc/passwd":
		lines := []string{}
		if uid != 0 {
			lines = append(lines, "root:x:0:0:root:/root:/bin/sh")
		}
		lines = append(lines, fmt.Sprintf("user:x:%d:%d:user:%s:/bin/sh", uid, gid, Home))
		if uid != 65534 {
			lines = append(lines, "nobody:x:65534:65534:nobody:/nonexistent:/bin/false")
		}
		return strings.Join(lines, "\n") + "\n"
	case "/etc/group":
		lines := []string{}
		if gid != 0 {
			lines = append(lines, "root:x:0:")
		}
		lines = append(lines, fmt.Sprintf("user:x:%d:", gid))
		if gid != 65534 {
			lines = append(lines, "nogroup:x:65534:")
		}
		return strings.Join(lines, "\n") + "\n"
	case "/etc/hosts":
		return "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t" + p.w.Hostname + "\n"
	case "/etc/hostname":
		return p.w.Hostname + "\n"
	}
	return ""
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, _ := path.Match(pattern, name)
		return ok
	})
}
