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
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/config/srt"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// rlmRooms are the folders of the kernels that tine rlm runs: one for each project and
// session, which one process at a time has.
type rlmRooms struct {
	c    *cli
	root string
	log  *slog.Logger
}

// A room is the folder of a kernel, and the gateway on it.
type room struct {
	rooms  *rlmRooms
	dir    string
	about  roomFile
	cfg    *config.Config
	p      *service
	helper *rlmHelper // nil for none
	srt    *srt.Settings
	note   string      // what the client is told; empty for nothing
	brief  bool        // it is removed at the end
	left   atomic.Bool // the client has
}

// roomFile is what a room says of itself.
type roomFile struct {
	Flags rlmFlags  `json:"flags"`
	Stage string    `json:"stage"`
	Used  time.Time `json:"used"`
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
	programDir = "programs" // copies of tine-sandbox, for all rooms
	// roomKept is how long a room is kept without use.
	roomKept = 7 * 24 * time.Hour
	// endingWait is how long the next process waits for one whose client has left: it
	// writes the kernel's memory to disk.
	endingWait = time.Minute
	// briefWait is how long the removal of a kernel that is not kept may take.
	briefWait = 30 * time.Second
)

func (c *cli) rlmRooms(state string) *rlmRooms {
	return &rlmRooms{c: c, root: filepath.Join(state, "rlm"), log: telemetry.NewLogger(c.stderr, "warn", "text", telemetry.NewRedactor())}
}

// programs is the folder of copies of tine-sandbox.
func (r *rlmRooms) programs() string { return filepath.Join(r.root, programDir) }

// take opens the room of a project. Where another process has it, the client gets one
// that is not kept.
func (r *rlmRooms) take(ctx context.Context, flags rlmFlags) (*room, error) {
	// What a sandbox keeps, a container and a process can't use.
	sum := sha256.Sum256([]byte(flags.Project + "\x00" + flags.Session + "\x00" + flags.way()))
	m := &room{rooms: r, dir: filepath.Join(r.root, hex.EncodeToString(sum[:8])), about: roomFile{Flags: flags}}
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state folder: %w; choose another with --state", err)
	}
	var err error
	if m.srt, err = flags.srt(); err != nil {
		return nil, usagef("--srt: %w", err)
	}
	if m.srt != nil {
		for _, w := range m.srt.Warnings {
			r.log.Warn(w)
		}
		if !m.srt.MayWrite(filepath.Join(m.dir, roomName)) {
			return nil, usagef("--srt: filesystem.allowWrite of %s does not have %s, where the state of the kernel is; add it, or choose another folder with --state", flags.SRT, r.root)
		}
	}
	m.helper = newRLMHelper(m)
	for late := time.Now().Add(endingWait); ; {
		err := m.open(ctx)
		if err == nil {
			return m, m.opened()
		}
		if !errors.Is(err, store.ErrLocked) {
			return nil, err
		}
		// One that is closed is let go of in a moment.
		if about, err := readRoom(m.dir); err != nil || about.Stage == roomOpen || time.Now().After(late) {
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	m.brief = true
	m.note = fmt.Sprintf("another client has the kernel of %s; this one has a kernel of its own, whose variables are gone when the client leaves", flags.Project)
	if m.dir, err = os.MkdirTemp(r.root, briefRooms); err != nil {
		return nil, err
	}
	if err := m.open(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(m.dir))
	}
	return m, m.opened()
}

// opened says what is to be said of a room that was opened for a client.
func (m *room) opened() error {
	for _, w := range warnings(m.cfg) {
		m.rooms.log.Warn(flagWords(w))
	}
	return m.say(roomOpen)
}

// open makes the gateway on the room.
func (m *room) open(ctx context.Context) error {
	cfg, err := m.rooms.c.rlmConfig(&m.about.Flags)
	if err != nil {
		return err
	}
	m.cfg = cfg // the service may need the helper before it is made
	redact := telemetry.NewRedactor()
	redact.Set(cfg.Secrets())
	log := telemetry.NewLogger(m.rooms.c.stderr, cfg.Log.Level, cfg.Log.Format, redact)
	var anew atomic.Bool
	unfit := func(_, why string) bool {
		changed := !strings.Contains(why, "is damaged") // of which a call is told, with the file
		anew.Store(changed)
		return changed
	}
	m.p, err = newService(ctx, serviceOptions{
		Config: cfg, State: m.dir, StateFlag: stateFlag(m.dir), Version: m.rooms.c.version, Redact: redact, Log: log,
		Closed: func() {
			if !m.brief {
				if err := m.say(roomClosed); err != nil {
					m.rooms.log.Warn("the state folder does not know that it was closed", "folder", m.dir, "err", err)
				}
			}
		},
		RLM: rlmOptions{Flags: rlmSettings, Note: m.note, Programs: m.rooms.programs(), Helper: m.helper, Denied: m.denied, Unfit: unfit, Anew: anew.Load, Left: m.left.Load},
	})
	return err
}

// denied reports whether the settings of sandbox-runtime keep a file from being read.
func (m *room) denied(f *os.File) bool {
	return m.srt != nil && (m.srt.DeniedFile(f) || m.srt.Denied(f.Name()))
}

// say writes down how it stands with the room.
func (m *room) say(stage string) error {
	m.about.Stage, m.about.Used = stage, m.rooms.c.now().UTC()
	return m.write()
}

func (m *room) write() error {
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

// close ends the gateway, and with it the kernel, whose memory is kept. A room that is not
// kept is removed by the helper, where there is one: this process may be confined.
func (m *room) close() {
	if m.brief { // what it has in an engine of containers goes too
		ctx, cancel := context.WithTimeout(context.Background(), briefWait)
		for _, s := range m.p.registry.Sessions() {
			if err := m.p.registry.CloseSession(ctx, s); err != nil {
				m.rooms.log.Warn("a kernel that is not kept may not be removed", "err", err)
			}
		}
		cancel()
	}
	m.p.Close()
	helped, err := m.helper.bye()
	if m.brief && !helped {
		err = os.RemoveAll(m.dir)
	}
	if err != nil {
		m.rooms.log.Warn("a folder that is not kept may not be removed", "folder", m.dir, "err", err)
	}
}

// removeBrief removes a room that is not kept.
func removeBrief(dir string) error {
	if !strings.HasPrefix(filepath.Base(dir), briefRooms) {
		return nil
	}
	return os.RemoveAll(dir)
}

// settle ends in order what a process left that was killed: the kernel's memory is kept.
func (r *rlmRooms) settle(ctx context.Context, dir string) error {
	about, err := readRoom(dir)
	if err != nil {
		return err
	}
	m := &room{rooms: r, dir: dir, about: about, brief: strings.HasPrefix(filepath.Base(dir), briefRooms)}
	if err := m.open(ctx); err != nil {
		return err
	}
	m.brief = m.brief || r.c.now().Sub(about.Used) > roomKept
	m.close()
	return nil
}

// sweep ends what processes left that were killed together with their helpers, and removes
// what was not used for long.
func (r *rlmRooms) sweep(ctx context.Context) {
	dirs, err := os.ReadDir(r.root)
	if err != nil {
		return
	}
	for _, d := range dirs {
		dir := filepath.Join(r.root, d.Name())
		about, err := readRoom(dir)
		if err != nil || about.Stage == roomClosed && r.c.now().Sub(about.Used) <= roomKept {
			continue
		}
		if err := r.settle(ctx, dir); err != nil && !errors.Is(err, store.ErrLocked) {
			r.log.Warn("what an earlier tine rlm left was not ended", "folder", dir, "err", err)
		}
	}
	programs, err := os.ReadDir(r.programs())
	if err != nil {
		return
	}
	for _, d := range programs {
		// No room that is kept was used before.
		if info, err := d.Info(); err == nil && r.c.now().Sub(info.ModTime()) > 2*roomKept {
			if err := os.Remove(filepath.Join(r.programs(), d.Name())); err != nil {
				r.log.Warn("an old program was not removed", "file", d.Name(), "err", err)
			}
		}
	}
}
