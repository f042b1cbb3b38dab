package layout

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// maxHomes bounds how many homes are looked at.
const maxHomes = 200

// notHomes are directories that are no user's home.
var notHomes = append([]string{"/var/lib", "/var/run", "/var/cache", "/srv", "/run", "/nonexistent", "/proc", "/dev", "/sys", "/tmp", "/etc"}, system...)

// Homes finds the homes on this host: first the caller's own.
func Homes(own string) []string { return host{}.homes(own) }

func (h host) homes(own string) []string {
	first := "/nonexistent"
	if path.IsAbs(own) {
		first = path.Clean(own)
		if real, _, err := h.real(first); err == nil {
			first = real
		}
	}
	all := []string{first}
	add := func(at string) {
		real, info, err := h.stat(at)
		if err != nil && at == "/root" {
			real = at // that we can't look at it does not matter
		} else if err != nil || !info.IsDir() {
			return
		}
		if len(all) < maxHomes && !slices.Contains(all, real) && (real == "/root" || !slices.Contains(everybodys, real)) {
			all = append(all, real)
		}
	}
	add("/root")
	for _, dir := range []string{"/home", "/Users"} {
		list, _ := h.readDir(dir, 10_000)
		for _, e := range list {
			add(path.Join(dir, e.Name()))
		}
	}
	// Homes of people only: daemons have folders of the system as theirs.
	b, _ := h.head("/etc/passwd", 1<<20)
	for line := range strings.Lines(string(b)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) < 7 {
			continue
		}
		if uid, err := strconv.Atoi(fields[2]); err == nil && uid >= 1000 && uid < 60_000 && path.IsAbs(fields[5]) && !slices.ContainsFunc(notHomes, func(dir string) bool { return within(dir, path.Clean(fields[5])) }) {
			add(fields[5])
		}
	}
	return all
}
