package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// boxProcess is one that a gateway has written down.
type boxProcess struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

// boxRecord is what a gateway writes down of an instance, in a sandbox or not.
type boxRecord struct {
	Sandbox string `json:"sandbox"` // what its cgroup is called, too
	boxProcess
	Gofer boxProcess `json:"gofer"`
}

// boxRecords reads those of the instances in a folder whose names begin so.
func boxRecords(dir, prefix string) ([]boxRecord, error) {
	all, err := readRecords(dir, prefix, "sandbox.json")
	return slices.DeleteFunc(all, func(r boxRecord) bool { return r.PID == 0 }), err // it is being made
}

// processRecords is the same of those without a sandbox.
func processRecords(dir, prefix string) ([]boxRecord, error) {
	all, err := readRecords(dir, prefix, "process.json")
	return slices.DeleteFunc(all, func(r boxRecord) bool { return r.PID == 0 }), err
}

// recordOf is that of a process of our own.
func recordOf(pid int) boxRecord { return boxRecord{boxProcess: boxProcess{PID: pid}} }

func readRecords(dir, prefix, name string) (found []boxRecord, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, prefix+"*", name))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		var r boxRecord
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil {
			return nil, fmt.Errorf("read what is known of an instance: %w", err)
		}
		found = append(found, r)
	}
	return found, nil
}

// tree is the processes there are, each with its children.
type tree map[int][]int

func descendants() (tree, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	all := tree{}
	for _, path := range stats {
		fields, err := statFields(path)
		if err != nil {
			continue // gone meanwhile
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, _ := strconv.Atoi(fields[1])
		all[parent] = append(all[parent], pid)
	}
	return all, nil
}

// statFields are those of /proc/PID/stat from the third on, the state: what is
// before may have anything in it.
func statFields(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	_, rest, ok := strings.Cut(string(text[bytes.LastIndexByte(text, ')')+1:]), " ")
	if fields := strings.Fields(rest); ok && len(fields) > 19 {
		return fields, nil
	}
	return nil, fmt.Errorf("%s is not as it should be", path)
}

// below is a process and all that come from it.
func (t tree) below(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, t[all[i]]...)
	}
	return all
}

// processes are those of a sandbox: its kernel, the processes that the program
// runs in, and who opens files for it.
func (r boxRecord) processes(t tree) []int {
	all := t.below(r.PID)
	if r.Gofer.PID > 0 {
		all = append(all, t.below(r.Gofer.PID)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// held is what they hold, each page that several have divided among those.
func (r boxRecord) held(t tree) (sum holding, err error) {
	var seen []int
	for _, pid := range r.processes(t) {
		// The threads of a program are processes outside, with one memory.
		if slices.ContainsFunc(seen, func(other int) bool { return sameMemory(pid, other) }) {
			continue
		}
		seen = append(seen, pid)
		h, err := heldBy(pid)
		if err != nil && pid != r.PID && (errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH)) {
			continue // a process of the program that has ended
		}
		if err != nil {
			return holding{}, fmt.Errorf("read what a sandbox holds: %w", err)
		}
		sum.add(h)
	}
	return sum, nil
}

func heldBy(pid int) (h holding, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return h, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	if h.pss, err = kibibytes(lines, "Pss:"); err == nil {
		h.files, err = kibibytes(lines, "Pss_File:")
	}
	if err == nil {
		h.inside, err = kibibytes(lines, "Pss_Shmem:")
	}
	return h, err
}

// sameMemory is whether two processes have one address space.
func sameMemory(a, b int) bool {
	const kcmpVM = 1
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpVM, 0, 0, 0)
	return errno == 0 && order == 0
}

// kibibytes finds the next line of that name.
func kibibytes(lines *bufio.Scanner, name string) (int64, error) {
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == name {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, errors.Join(lines.Err(), fmt.Errorf("there is no line %s", name))
}

// memoryFree is how much could be given to somebody; 0 where it is not known.
func memoryFree() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	n, err := kibibytes(bufio.NewScanner(f), "MemAvailable:")
	if err != nil {
		return 0
	}
	return n
}

// lives is whether it is still the process that was written down.
func (p boxProcess) lives() bool {
	fields, err := statFields(fmt.Sprintf("/proc/%d/stat", p.PID))
	return err == nil && fields[0] != "Z" && fields[19] == strconv.FormatUint(p.Start, 10)
}

// sweepBoxes ends what a gateway that is gone left in its state folder, servers
// with and without a sandbox, and says what that was.
func sweepBoxes(state string) (left []string) {
	var all []boxRecord
	for _, place := range []struct{ dir, name string }{
		{"instances", "sandbox.json"}, {"instances", "process.json"}, {"sandbox/slots", "sandbox.json"},
	} {
		found, err := readRecords(filepath.Join(state, place.dir), "", place.name)
		if err != nil {
			left = append(left, err.Error())
		}
		all = append(all, found...)
	}
	for _, r := range all {
		for _, p := range []boxProcess{r.boxProcess, r.Gofer} {
			if p.PID > 1 && p.lives() {
				left = append(left, fmt.Sprintf("process %d of %s", p.PID, r.Sandbox))
				_ = unix.Kill(p.PID, unix.SIGKILL)
			}
		}
	}
	// What was being made is not written down as a process yet.
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(line, []byte("--root="+filepath.Join(state, "sandbox", "run")+"\x00")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		left = append(left, fmt.Sprintf("process %d, which nothing is known of", pid))
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	for _, r := range all {
		for i := 0; i < 100 && (r.lives() || r.Gofer.lives()); i++ {
			time.Sleep(20 * time.Millisecond)
		}
		if r.Sandbox != "" {
			removeGroups(r.Sandbox)
		}
	}
	return left
}

// removeGroups removes the cgroups of a sandbox, which are empty.
func removeGroups(sandbox string) {
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		groups, _ := filepath.Glob(pattern + sandbox)
		for _, group := range groups {
			_ = os.Remove(group)
		}
	}
}
