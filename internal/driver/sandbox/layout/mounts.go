package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// maxMounts bounds the list of mounts that is read.
const maxMounts = 16 << 20

// A mount is a filesystem, or a part of one, at a place of the host.
type mount struct {
	device string
	root   string // what of the filesystem it shows
	at     string
	fstype string
}

// kernels are filesystems that show the host's own kernel, devices or processes.
var kernels = []string{
	"proc", "sysfs", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "bpf", "pstore",
	"configfs", "efivarfs", "binfmt_misc", "hugetlbfs", "fusectl", "rpc_pipefs", "nsfs", "selinuxfs",
}

// readMounts lists the mounts. A host without such a list has none to find.
func readMounts(h host) ([]mount, error) {
	const list = "/proc/self/mountinfo"
	name := h.at(list)
	b, err := readBounded(name, maxMounts)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read which mounts there are: %w", err)
	}
	var all []mount
	for line := range strings.Lines(string(b)) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		fields, more := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(more) < 1 {
			continue
		}
		all = append(all, mount{device: fields[2], root: unescape(fields[3]), at: unescape(fields[4]), fstype: more[0]})
	}
	return all, nil
}

func readBounded(name string, max int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, max)
}

var escapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func unescape(s string) string { return escapes.Replace(s) }

// of is the mount that a real path is on: the last of the longest.
func of(mounts []mount, real string) *mount {
	var found *mount
	for i, m := range mounts {
		if within(m.at, real) && (found == nil || len(m.at) >= len(found.at)) {
			found = &mounts[i]
		}
	}
	return found
}

// aliases are other paths of the host at which a secret is seen, or what is in
// it, because a filesystem is mounted more than once.
func aliases(h host, mounts []mount, s secret) []string {
	m := of(mounts, s.real)
	if m == nil {
		return nil
	}
	inside := below(m.root, m.at, s.real)
	var all []string
	for _, other := range mounts {
		if other.device != m.device {
			continue
		}
		at, is := "", s.real
		switch {
		case within(other.root, inside):
			at = below(other.at, other.root, inside)
		case within(inside, other.root) && !s.whole:
			at, is = other.at, below(s.real, inside, other.root)
		default:
			continue
		}
		if within(s.real, at) || slices.Contains(all, at) || !same(h, at, is) {
			continue
		}
		all = append(all, at)
	}
	return all
}

// same reports whether two paths are the same file: another mount may lie over
// one of them. Where that can't be seen it is assumed.
func same(h host, a, b string) bool {
	ai, aerr := h.lstat(a)
	bi, berr := h.lstat(b)
	if aerr != nil || berr != nil {
		return !errors.Is(aerr, fs.ErrNotExist)
	}
	return os.SameFile(ai, bi)
}

// kernelMounts are where the kernel shows itself.
func kernelMounts(mounts []mount) []string {
	var all []string
	for _, m := range mounts {
		if slices.Contains(kernels, m.fstype) && !slices.Contains(all, m.at) {
			all = append(all, m.at)
		}
	}
	return all
}
