//go:build linux || darwin

package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/tine-mcp/tine/internal/driver/family"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/procid"
)

// adopt takes over the program of a run from an earlier gateway. It may have ended
// meanwhile. The error is errNever where none was started.
func (h *programs) adopt(run string) (*program, error) {
	dir, rec, err := h.find(run)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if st, err := os.Lstat(dir); err == nil && st.IsDir() && !folder.RemoveEmpty(dir) {
			return nil, fmt.Errorf("the folder %s has no record of what runs in it; look at it and remove it", dir)
		}
		return nil, errNever
	case err != nil: // torn by a power cut, which no program survives
		return nil, errors.Join(err, h.clear(dir, record{}))
	case rec.Turn.Sending:
		err := errors.New("the gateway ended while it gave the run to a program, which may have got it")
		return nil, errors.Join(err, h.clear(dir, rec))
	}
	if rec.PID == 0 {
		// The gateway died before it noted the process, which may be there.
		id, begun, err := h.begun(dir, rec)
		if err == nil && !begun {
			err = h.clear(dir, rec)
		} else if err == nil && id.PID != 0 {
			rec.ID = id
			err = records.Write(dir, rec)
		}
		if err != nil {
			return nil, err
		}
		if !begun {
			return nil, errNever
		}
	}
	watch, err := procid.Watch(rec.ID)
	switch {
	case errors.Is(err, os.ErrProcessDone):
		p := h.program(dir, rec)
		p.reaped = true
		close(p.tended)
		p.conclude(h.census.End(p.kin)) // what it has left
		return p, nil
	case err != nil:
		return nil, err
	}
	return h.tended(dir, rec, watch), nil
}

// begun reports whether a program has begun whose process was not noted, and its shell,
// which may be gone. If it has not, it never will.
func (h *programs) begun(dir string, rec record) (procid.ID, bool, error) {
	giveUp := time.Now().Add(family.KillWait)
	for taken := false; ; {
		id := h.leader(dir, rec)
		if hasBegun(dir) {
			if id.PID == 0 { // it may have become the shell since
				id = h.leader(dir, rec)
			}
			return id, true, nil
		}
		switch {
		case id.PID != 0 && time.Now().After(giveUp):
			return id, false, fmt.Errorf("process %d does not begin its program", id.PID)
		case id.PID != 0:
			time.Sleep(time.Millisecond)
		case taken: // a shell that saw the ticket would have been found
			return id, false, nil
		default:
			if err := os.Remove(filepath.Join(dir, readyName+rec.Ticket)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return id, false, err
			}
			taken = true
		}
	}
}

// leader is the shell of a program whose process was not noted; zero for none. It has
// written its number, or it runs alone.
func (h *programs) leader(dir string, rec record) procid.ID {
	text, _ := os.ReadFile(filepath.Join(dir, begunName))
	number := string(bytes.TrimSpace(text))
	for _, m := range h.census.Members(h.family(dir, rec)) {
		if number != "" && number != strconv.Itoa(m.PID) {
			continue
		}
		if s, err := procid.Look(m.PID); err == nil && s.ID == m.ID && s.Group == m.PID {
			return m.ID
		}
	}
	return procid.ID{}
}

// sweep ends the programs of runs that are not kept and removes their folders, and
// returns these. A folder without a record stays, unless it is empty.
func (h *programs) sweep(keep func(run string) bool) (gone []string, err error) {
	entries, err := os.ReadDir(h.root)
	if err != nil {
		return nil, fmt.Errorf("list the folders of runs: %w", err)
	}
	for _, e := range entries {
		dir := filepath.Join(h.root, e.Name())
		if !e.IsDir() {
			continue
		}
		rec, readErr := records.Read(dir)
		switch {
		case errors.Is(readErr, fs.ErrNotExist):
			if !keep(e.Name()) && folder.RemoveEmpty(dir) {
				gone = append(gone, dir)
			}
			continue
		case readErr != nil:
			rec.Turn.Run = e.Name()
		}
		if keep(rec.Turn.Run) {
			continue
		}
		if h.swept != nil && rec.Pass.Token != "" {
			h.swept(rec.Pass)
		}
		if clearErr := h.clear(dir, rec); clearErr != nil {
			err = errors.Join(err, fmt.Errorf("sweep %s: %w", dir, clearErr))
			continue
		}
		gone = append(gone, dir)
	}
	return gone, err
}

// discard ends what there is of the program of a run, which is not followed.
func (h *programs) discard(run string) error {
	dir, rec, err := h.find(run)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if st, err := os.Lstat(dir); err == nil && st.IsDir() && !folder.RemoveEmpty(dir) {
			return fmt.Errorf("the folder %s has no record of what runs in it; look at it and remove it", dir)
		}
		return nil
	case dir == "":
		return err
	}
	return h.clear(dir, rec)
}

// clear kills what belongs to a record and removes its folder.
func (h *programs) clear(dir string, rec record) error {
	if rec.Lives() {
		syscall.Kill(-rec.PID, syscall.SIGKILL)
	}
	if err := h.census.End(h.family(dir, rec)); err != nil {
		return err
	}
	for giveUp := time.Now().Add(family.KillWait); rec.Lives(); time.Sleep(time.Millisecond) {
		if time.Now().After(giveUp) {
			return fmt.Errorf("process %d was killed and does not end", rec.PID)
		}
	}
	if err := folder.Remove(dir, recordName); err != nil {
		return fmt.Errorf("remove the folder of the run: %w", err)
	}
	return nil
}
