// Package control is how the sandbox driver and its helper talk: the helper is a
// process of its own that has gVisor in it, and makes, freezes and ends sandboxes
// for the driver. One message is one packet on a Unix socket, JSON with perhaps
// some files beside it.
//
// The helper is a process of its own because it lives in a mount namespace, and
// for an ordinary user in a user namespace, in which it is root; because orphaned
// sandboxes become its children, and it waits for all of them;
// and because it can be the binary of an earlier version, which knows how to talk
// to the sandboxes that this one started.
package control

import (
	"fmt"
	"net/netip"
)

// Arg is the argument that makes the binary the helper, and Socket the descriptor
// of its socket. With ListenArg it answers one OpListen and ends.
const (
	Arg       = "tine-helper"
	ListenArg = "tine-listen"
	Socket    = 3
	Lock      = 4 // held by a helper, and by a process that makes a sandbox for it, for as long as they live
)

// Protocol is how the two talk. It grows when a helper of before would not
// understand what it is asked, or answer otherwise; which build a helper is of does
// not matter.
const Protocol = 1

// Unknown is the version of a gVisor that does not know its own.
const Unknown = "unknown"

// Operations of a Request.
const (
	OpHello      = "hello"      // says what this helper is
	OpRoot       = "root"       // makes a root: Root
	OpRootFile   = "root file"  // the same, of a root that is too large for a packet: Root.Dir and Root.File
	OpRefresh    = "refresh"    // brings a root that is Live up to date: Root, or Root.Dir and Root.File
	OpShow       = "show"       // lets a sandbox that was created with an open root see the parts of Root, and lets go of that
	OpDrop       = "drop"       // undoes a root, Root.Dir, or lets go of a network, Network.Name
	OpCreate     = "create"     // makes a sandbox: Sandbox, Flags, Bundle, and the files stdin, stdout, stderr
	OpStart      = "start"      // lets a sandbox that was created run its program
	OpRestore    = "restore"    // fills a sandbox that was created from Image
	OpCheckpoint = "checkpoint" // writes Image, a folder that is there and empty; the sandbox goes on
	OpPause      = "pause"      // lets nothing in a sandbox run until it is resumed
	OpResume     = "resume"     // does nothing to a running sandbox
	OpSignal     = "signal"     // sends Signal to the program
	OpWait       = "wait"       // says how a sandbox ended, when it has
	OpForward    = "forward"    // connects the file, a socket, to Port inside
	OpDestroy    = "destroy"    // ends a sandbox; a missing one is fine
	OpFind       = "find"       // says what there is of a sandbox
	OpNetwork    = "network"    // makes a network namespace for a sandbox: Network; returns its path, and the proxy's listener
	OpExec       = "exec"       // runs Exec in a sandbox that runs, to its end
	OpEnd        = "end"        // kills the command that Exec.ID names, and what it started; or with no name those that an earlier helper left
	OpListen     = "listen"     // of a process with ListenArg: returns another listener in the file, a network: Network
)

// A Request asks the helper for something.
type Request struct {
	ID      uint64   `json:"id"`
	Op      string   `json:"op"`
	Sandbox string   `json:"sandbox,omitempty"`
	Flags   []string `json:"flags,omitempty"` // of runsc, as --name=value
	Bundle  string   `json:"bundle,omitempty"`
	Image   string   `json:"image,omitempty"`
	Port    int      `json:"port,omitempty"`
	Signal  int      `json:"signal,omitempty"`
	Root    *Root    `json:"root,omitempty"`
	Network *Network `json:"network,omitempty"`
	Exec    *Exec    `json:"exec,omitempty"`
}

// Root is a root directory that is put together from parts of the host's.
type Root struct {
	Dir   string `json:"dir"`            // where it appears, for the helper and its sandboxes alone
	File  string `json:"file,omitempty"` // has the root as JSON, of OpRootFile
	Parts []Part `json:"parts,omitempty"`
	// Masks are paths in the root that must not show what is there.
	Masks []string `json:"masks,omitempty"`
	// Live lets sandboxes that have it see what OpRefresh makes of it.
	Live bool `json:"live,omitempty"`
	// Open lets a sandbox that has a part of it see what is shown there later.
	Open bool `json:"open,omitempty"`
}

// Part is one piece of a Root.
type Part struct {
	Path   string `json:"path"`             // in the root
	Inside string `json:"inside,omitempty"` // where a sandbox has it, of OpShow
	Source string `json:"source,omitempty"` // a file or directory of the host
	Link   string `json:"link,omitempty"`   // or where a symbolic link leads
	Text   string `json:"text,omitempty"`   // or what is in a file; without any of them it is a directory
	File   bool   `json:"file,omitempty"`   // Text may be empty
	Mode   uint32 `json:"mode,omitempty"`   // of a directory or Text; default 0755 and 0644
	Write  bool   `json:"write,omitempty"`  // Source may be written to
	Owner  *Owner `json:"owner,omitempty"`  // the owner of Source inside
	Like   *Like  `json:"like,omitempty"`   // whose owner a directory has
	// Of is the directory of the host that was to be seen, where Source is only an
	// entry of it, as it was found: one that is gone by now is left out.
	Of string `json:"of,omitempty"`
}

// Like is a directory of the host, and its owner outside.
type Like struct {
	Path string `json:"path"`
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
}

// Owner says that what is the host's UID and GID is another's inside, and the
// other way round.
type Owner struct {
	UID       int `json:"uid"`
	GID       int `json:"gid"`
	InsideUID int `json:"inside_uid"`
	InsideGID int `json:"inside_gid"`
}

// Network is a network namespace with lo in it, and where Inner is given a link to
// an address at which a proxy listens.
type Network struct {
	Name  string `json:"name,omitempty"`  // what the helper knows it by until it is dropped
	Inner string `json:"inner,omitempty"` // address and length, as 10.0.0.2/30
	Outer string `json:"outer,omitempty"` // the proxy's, in the same net
	Port  int    `json:"port,omitempty"`
}

// Listen is where the proxy listens.
func (n *Network) Listen() (netip.AddrPort, error) {
	outer, err := netip.ParsePrefix(n.Outer)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if !outer.Addr().Is4() || n.Port < 1 || n.Port > 65535 {
		return netip.AddrPort{}, fmt.Errorf("%s port %d is nothing to listen at", n.Outer, n.Port)
	}
	return netip.AddrPortFrom(outer.Addr(), uint16(n.Port)), nil
}

// A Reply answers a Request.
type Reply struct {
	ID    uint64 `json:"id"`
	Error string `json:"error,omitempty"`
	Gone  bool   `json:"gone,omitempty"` // there is no such sandbox

	PID    int    `json:"pid,omitempty"`    // of the sandbox
	Gofer  int    `json:"gofer,omitempty"`  // the process that opens files for it
	Status string `json:"status,omitempty"` // created, running, paused or stopped; of OpWait how it ended
	Path   string `json:"path,omitempty"`   // of a network namespace

	Code     int  `json:"code,omitempty"`      // of OpExec: what the command exited with
	Signaled int  `json:"signaled,omitempty"`  // or the signal that it was ended by
	NotFound bool `json:"not_found,omitempty"` // the command's program is not there
	NotDir   bool `json:"not_dir,omitempty"`   // the command's folder is not there

	Version  string `json:"version,omitempty"`  // of gVisor
	Protocol int    `json:"protocol,omitempty"` // see Protocol; helpers from before it say none
}
