package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

// rlmRooms are the folders of the kernels that tine rlm runs: one for each project and
// session, which one process at a time has.
type rlmRooms struct {
	root string
	now  func() time.Time
	log  *slog.Logger
}

// A room is the folder of a kernel, and the gateway on it.
type room struct {
	rooms *rlmRooms
	dir   string
	about roomFile
	p     *service
	note  string // what the client is told; empty for nothing
	brief bool   // it is removed at the end
}

// roomFile is what a room says of itself.
type roomFile struct {
	Project string    `json:"project"`
	Session string    `json:"session,omitempty"`
	Stage   string    `json:"stage"`
	Used    time.Time `json:"used"`
}

// The stages of a room.
const (
	roomOpen   = "open"   // a process has it, or was killed
	roomEnding = "ending" // its client has left
	roomClosed = "closed"
)

const (
	roomName   = "room.json"
	briefRooms = "second-"
	// roomKept is how long a room is kept without use.
	roomKept = 7 * 24 * time.Hour
	// endingWait is how long the next process waits for one whose client has left: it
	// writes the kernel's memory to disk.
	endingWait = time.Minute
)

// take opens the room of a project. Where another process has it, the client gets one
// that is not kept.
func (r *rlmRooms) take(ctx context.Context, project, session string, open func(dir, note string) (*service, error)) (*room, error) {
	sum := sha256.Sum256([]byte(project + "\x00" + session))
	m := &room{rooms: r, dir: filepath.Join(r.root, hex.EncodeToString(sum[:8])), about: roomFile{Project: project, Session: session}}
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state folder: %w; choose another with --state", err)
	}
	var err error
	for late := r.now().Add(endingWait); ; {
		if m.p, err = open(m.dir, ""); err == nil {
			return m, m.say(roomOpen)
		}
		if !errors.Is(err, store.ErrLocked) {
			return nil, err
		}
		if about, err := readRoom(m.dir); err != nil || about.Stage != roomEnding || r.now().After(late) {
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	m.brief = true
	m.note = fmt.Sprintf("another client has the kernel of %s; this one has a kernel of its own, whose variables are gone when the client leaves", project)
	if m.dir, err = os.MkdirTemp(r.root, briefRooms); err != nil {
		return nil, err
	}
	if m.p, err = open(m.dir, m.note); err != nil {
		return nil, errors.Join(err, os.RemoveAll(m.dir))
	}
	return m, m.say(roomOpen)
}

// say writes down how it stands with the room.
func (m *room) say(stage string) error {
	m.about.Stage, m.about.Used = stage, m.rooms.now().UTC()
	data, err := json.Marshal(m.about)
	if err != nil {
		return err
	}
	part := filepath.Join(m.dir, roomName+".part")
	if err := os.WriteFile(part, data, 0o600); err != nil {
		return fmt.Errorf("write to the state folder: %w", err)
	}
	return os.Rename(part, filepath.Join(m.dir, roomName))
}

func readRoom(dir string) (about roomFile, err error) {
	data, err := os.ReadFile(filepath.Join(dir, roomName))
	if err != nil {
		return about, err
	}
	return about, json.Unmarshal(data, &about)
}

// ending says that the client has left, so that the next one waits.
func (m *room) ending() {
	if err := m.say(roomEnding); err != nil {
		m.rooms.log.Warn("the next client will not wait for this one", "err", err)
	}
}

// close ends the gateway, and with it the kernel, whose memory is kept.
func (m *room) close() {
	// Before the folder is free: then it belongs to the next one.
	if err := m.say(roomClosed); err != nil {
		m.rooms.log.Warn("the state folder does not know that it was closed", "err", err)
	}
	m.p.Close()
	if m.brief {
		if err := os.RemoveAll(m.dir); err != nil {
			m.rooms.log.Warn("a folder that is not kept was not removed", "folder", m.dir, "err", err)
		}
	}
}

// sweep ends what processes left that were killed together with their helper, and removes
// rooms that nobody used for long. open makes the gateway of a room that only ends what
// is there.
func (r *rlmRooms) sweep(open func(dir string) (*service, error)) {
	dirs, err := os.ReadDir(r.root)
	if err != nil {
		return
	}
	for _, d := range dirs {
		dir := filepath.Join(r.root, d.Name())
		about, err := readRoom(dir)
		brief := strings.HasPrefix(d.Name(), briefRooms)
		old := err == nil && r.now().Sub(about.Used) > roomKept
		if err != nil || about.Stage == roomClosed && !old && !brief {
			continue
		}
		p, err := open(dir)
		if err != nil {
			if !errors.Is(err, store.ErrLocked) {
				r.log.Warn("what an earlier tine rlm left was not ended", "folder", dir, "err", err)
			}
			continue
		}
		m := &room{rooms: r, dir: dir, about: about, p: p, brief: brief || old}
		m.close()
	}
}
