// Package confine takes rights away from the process that calls it, from all of its
// threads and from what they start, for good. It uses Landlock for files and TCP, and
// seccomp for system calls, both of Linux; elsewhere Apply is an error. It is a second
// wall: what runs untrusted code has a sandbox of its own.
//
// Landlock has versions (ABI), and an older kernel refuses less. Apply takes what there
// is, and its Report says in words what is refused and what can't be. The caller decides
// whether that is enough.
//
// Rights are looked at when a file is opened. A file, pipe or socket that is open stays
// as usable as it is, and so does one that is received over a Unix socket: this is how a
// confined process is given a connection. Open or load before Apply what is read only once
// and late, such as certificate authorities and the time zone.
//
// What a confined process can still do is listed at Rules.
package confine

import (
	"errors"
	"fmt"
	"strings"
)

// Rules are the rights that a process keeps. The zero value keeps none over files, and
// Unix sockets as the only sockets.
//
// No rules keep a process from these:
//   - to use what is open, and what is handed to it over a socket;
//   - to see that a file exists anywhere, its size, mode, owner and times, where a link
//     leads, and names of files that change in a folder (inotify);
//   - to send signals to processes of its user, unless ScopeSignals, and to fork;
//   - to make namespaces by clone3, whose arguments no filter sees; nothing can be mounted,
//     run or connected in them;
//   - to place links and files in the folders of Write, which others may follow or run;
//   - to use CPU, memory and disk.
type Rules struct {
	// Read are files, and folders with all below them, that may be read.
	Read []string
	// Write are folders in which all may be read, written, made, renamed and removed, but
	// not devices made; also single files, such as /dev/null.
	Write []string
	// Exec are programs, and folders of them, that may be read and run, with the same
	// confinement. Empty refuses to run anything. With an entry, code of any kind can be run
	// from memory (memfd_create), confined as well.
	Exec []string
	// Sockets are Unix sockets of other programs, and folders of them, that may be
	// connected. Kernels before Linux 7.1 let all be connected that file modes allow, and
	// some lead out of any confinement, such as systemd's and a container engine's: where
	// nothing needs to be connected, set PairsOnly.
	Sockets []string
	// PairsOnly refuses to make, bind and connect any socket. Pairs of Unix sockets can be
	// made.
	PairsOnly bool
	// Attributes lets modes, owners, times and extended attributes be changed by path.
	// Landlock does not look at this: it is then possible outside of Write as well, as far
	// as the user may. Without it they can be changed of open files alone.
	Attributes bool
	// ScopeAbstract refuses to connect abstract Unix sockets of other processes. Before
	// Linux 7.0 threads of one process are apart in this, too.
	ScopeAbstract bool
	// ScopeSignals refuses to signal other processes, those that were started before Apply
	// among them.
	ScopeSignals bool
}

// A Report says what holds.
type Report struct {
	ABI     int      // of Landlock; 0 where there is none
	Files   bool     // whether files are confined, by Landlock
	Calls   bool     // whether system calls are, by seccomp
	Holds   []string // what is refused
	Missing []string // what is not refused here, and why
	Skipped []string // paths of the rules that do not exist
}

// Complete reports whether files and system calls are confined. Missing may name details
// all the same.
func (r Report) Complete() bool { return r.Files && r.Calls }

// String is the report in one line.
func (r Report) String() string {
	parts := []string{"Landlock ABI " + fmt.Sprint(r.ABI)}
	if r.ABI == 0 {
		parts[0] = "no Landlock"
	}
	for _, p := range []struct {
		words string
		list  []string
	}{{"refused: ", r.Holds}, {"not refused: ", r.Missing}, {"not there: ", r.Skipped}} {
		if len(p.list) > 0 {
			parts = append(parts, p.words+strings.Join(p.list, ", "))
		}
	}
	return strings.Join(parts, "; ")
}

// ErrUnsupported is the error of Apply on systems other than Linux.
var ErrUnsupported = fmt.Errorf("a process can be confined on Linux alone: %w", errors.ErrUnsupported)

// Apply confines this process. It may be called at any moment and more than once; each
// call can only take away. After an error other than ErrUnsupported the process may be
// confined in part, and should end.
func Apply(r Rules) (Report, error) { return apply(r) }

// Can says what Apply would hold of these rules. It does not look at their paths.
func Can(r Rules) Report { return can(r) }
