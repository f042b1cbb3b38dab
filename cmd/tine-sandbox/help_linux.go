//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"

	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// helper makes sandboxes for a driver, until that hangs up.
type helper struct {
	conn  *control.Conn
	confs confs
	kids  *kids
	maps  idmaps
	nets  networks
	roots sync.Map // of live roots, *madeRoot by folder

	commands commands

	apart  sync.Mutex // held while a folder for roots is made
	mu     sync.Mutex
	boxes  map[string]*box
	making making
	work   sync.WaitGroup // requests in progress
}

// help is the life of the helper.
func help() error {
	// A goroutine that mounts must not move to a thread with other mounts.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper of sandboxes: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keep mounts to itself: %w", err)
	}
	runtime.UnlockOSThread()
	unix.CloseOnExec(control.Socket)
	unix.CloseOnExec(control.Lock)
	conn, err := control.Open(os.NewFile(control.Socket, "control"))
	if err != nil {
		return err
	}
	log.SetTarget(&log.GoogleEmitter{Writer: &log.Writer{Next: io.Discard}})
	if err := forbidModes(); err != nil {
		return fmt.Errorf("forbid modes of files: %w", err)
	}
	h := &helper{conn: conn, boxes: make(map[string]*box), kids: newKids()}
	for {
		var req control.Request
		files, err := conn.Read(&req)
		if err != nil {
			// Sandboxes go on without us. Requests that have begun are finished: a sandbox
			// that is being made would be known to no process, and gVisor's records of the
			// others must be true.
			h.endCommands()
			h.finish()
			if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
				return nil
			}
			return err
		}
		switch req.Op {
		case control.OpExec: // for as long as a command runs
			h.commands.expect(req.Exec)
			go h.serve(req, files)
			continue
		case control.OpWait: // for as long as a sandbox lives
			go h.serve(req, files)
			continue
		case control.OpCreate:
			h.making.begin(req.Sandbox)
		}
		h.work.Go(func() { h.serve(req, files) })
	}
}

// finishWait bounds requests whose caller no longer waits.
const finishWait = 20 * time.Second

func (h *helper) finish() {
	done := make(chan struct{})
	go func() {
		h.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(finishWait):
	}
}

// serve answers one request.
func (h *helper) serve(req control.Request, files []*os.File) {
	defer control.Close(files)
	rep, out, err := h.do(req, files)
	rep.ID = req.ID
	if err != nil {
		rep.Error = err.Error()
		rep.Gone = errors.Is(err, os.ErrNotExist) && !slices.Contains([]string{control.OpCreate, control.OpRoot, control.OpRootFile, control.OpRefresh}, req.Op)
	}
	if req.Op == control.OpCreate {
		h.making.end(req.Sandbox)
	}
	if err := h.conn.Write(rep, out...); err != nil {
		fmt.Fprintln(os.Stderr, "answer:", err)
		if req.Op == control.OpCreate {
			if err := h.destroy(req); err != nil {
				fmt.Fprintln(os.Stderr, "destroy:", err)
			}
		}
	}
	control.Close(out)
}

func (h *helper) do(req control.Request, files []*os.File) (rep control.Reply, out []*os.File, err error) {
	switch req.Op {
	case control.OpHello:
		rep.Version, rep.Protocol = gvisorVersion(), control.Protocol
	case control.OpRoot:
		err = h.makeRoot(req.Root)
	case control.OpRootFile:
		err = h.makeRootFile(req.Root)
	case control.OpRefresh:
		err = h.refreshRoot(req.Root)
	case control.OpShow:
		err = h.on(req, func(b *box) error { return h.show(b, req.Root) })
	case control.OpDrop:
		if req.Network != nil {
			h.nets.drop(req.Network.Name)
		} else {
			h.forgetRoot(req.Root.Dir)
			err = dropRoot(req.Root.Dir)
		}
	case control.OpCreate:
		rep, err = h.create(req, files)
	case control.OpStart:
		err = h.on(req, func(b *box) error { return b.c.Start(b.conf) })
	case control.OpRestore:
		err = h.on(req, func(b *box) error { return b.restore(req.Image) })
	case control.OpCheckpoint:
		err = h.on(req, func(b *box) error { return b.checkpoint(req.Image) })
	case control.OpPause:
		err = h.on(req, (*box).pause)
	case control.OpResume:
		err = h.on(req, (*box).resume)
	case control.OpSignal:
		err = h.on(req, func(b *box) error { return b.c.SignalContainer(unix.Signal(req.Signal), false) })
	case control.OpWait:
		rep, err = h.wait(req)
	case control.OpForward:
		err = h.forward(req, files)
	case control.OpFind:
		rep, err = h.find(req)
	case control.OpDestroy:
		err = h.destroy(req)
	case control.OpExec:
		rep, err = h.exec(req, files)
	case control.OpEnd:
		err = h.endCommand(req)
	case control.OpNetwork:
		rep, out, err = h.nets.make(req.Network)
	default:
		err = fmt.Errorf("%q is nothing that this helper does", req.Op)
	}
	return rep, out, err
}

// gvisorVersion is that of the gVisor in this binary: what one wrote another of the
// same version can read.
func gvisorVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "gvisor.dev/gvisor" {
				return m.Version
			}
		}
	}
	return control.Unknown
}
