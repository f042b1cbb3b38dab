package session

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/store"
)

// The folder of a session and that of a snapshot say themselves what they are,
// so that a database that was lost, or is older than they are, costs none of
// them:
//
//	sessions/ses_x/~session        the session's record, as the store has it
//	sessions/ses_x/~session.new    it is being opened, and was not answered yet
//	sessions/ses_x/~session.gone   it was closed, and is being removed
//	snapshots/snp_x/~snapshot      the same for a snapshot
//
// A folder is removed only where it says so itself, as one with .new or .gone
// does, or where the store knows that its session is closed. A missing record
// is no reason.
//
// The store is written first. A change counts the session's Rev up, so that it
// can be told which of two records is the newer one.
type folderRecord struct{ dir, name string }

const (
	sessionRecord  = "~session"
	snapshotRecord = "~snapshot"
	newMark        = ".new"
	goneMark       = ".gone"
	partMark       = ".part"
)

func recordOfSession(states, id string) folderRecord {
	return folderRecord{filepath.Join(states, "sessions", id), sessionRecord}
}

func recordOfSnapshot(states, id string) folderRecord {
	return folderRecord{filepath.Join(states, "snapshots", id), snapshotRecord}
}

// What a folder says of itself.
const (
	folderSilent  = iota // nothing
	folderNew            // it is not finished
	folderWhole          // it has a record
	folderGone           // it is being removed
	folderUnknown        // it can't be known
)

func (f folderRecord) path() string { return filepath.Join(f.dir, f.name) }

// says returns what the folder says of itself.
func (f folderRecord) says() int {
	for _, m := range []struct {
		mark string
		says int
	}{{goneMark, folderGone}, {"", folderWhole}, {newMark, folderNew}} {
		if _, err := os.Lstat(f.path() + m.mark); err == nil {
			return m.says
		} else if !errors.Is(err, fs.ErrNotExist) {
			return folderUnknown
		}
	}
	return folderSilent
}

// sealed is how a record is written: with a sum, as what is read decides over
// what is kept.
type sealed struct {
	Sum    string          `json:"sum"`
	Record json.RawMessage `json:"record"`
}

func seal(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	return json.Marshal(sealed{hex.EncodeToString(sum[:]), b})
}

// begin marks the folder, which it makes, as one that is not finished.
func (f folderRecord) begin(v any) error {
	b, err := seal(v)
	if err == nil {
		err = os.MkdirAll(f.dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(f.path()+newMark, b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing the record of %s: %w", filepath.Base(f.dir), err)
	}
	return nil
}

// settle makes the record count that begin wrote.
func (f folderRecord) settle() error {
	if err := os.Rename(f.path()+newMark, f.path()); err != nil {
		return fmt.Errorf("writing the record of %s: %w", filepath.Base(f.dir), err)
	}
	return nil
}

// write puts a record in the place of what the folder says of itself.
func (f folderRecord) write(v any) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing the record of %s: %w", filepath.Base(f.dir), err)
		}
	}()
	if err := writeSealed(f.path(), v); err != nil {
		return err
	}
	return remove(f.path()+newMark, f.path()+goneMark)
}

// writeSealed writes a record into a file, whole or not at all.
func writeSealed(path string, v any) error {
	b, err := seal(v)
	if err != nil {
		return err
	}
	part, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+partMark)
	if err != nil {
		return err
	}
	defer os.Remove(part.Name())
	_, err = part.Write(b)
	if err = errors.Join(err, part.Close()); err != nil {
		return err
	}
	return os.Rename(part.Name(), path)
}

// readSealed reads what writeSealed wrote.
func readSealed(path string, v any) error {
	b, err := os.ReadFile(path)
	var s sealed
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err == nil {
		if sum := sha256.Sum256(s.Record); hex.EncodeToString(sum[:]) != s.Sum {
			err = errors.New("its sum is wrong")
		}
	}
	if err == nil {
		err = json.Unmarshal(s.Record, v)
	}
	return err
}

// read reads the record of a folder that is whole.
func (f folderRecord) read(v any) error {
	if err := readSealed(f.path(), v); err != nil {
		return fmt.Errorf("reading the record of %s: %w", filepath.Base(f.dir), err)
	}
	return nil
}

// markRemoved marks a folder that is there as one that is being removed. What was never
// finished says that already.
func (f folderRecord) markRemoved() error {
	err := os.Rename(f.path(), f.path()+goneMark)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Lstat(f.dir); errors.Is(err, fs.ErrNotExist) || f.says() != folderSilent {
		return nil
	}
	return os.WriteFile(f.path()+goneMark, nil, 0o600)
}

// owns reports whether a name in the folder is one of the record's.
func (f folderRecord) owns(name string) bool {
	return name == f.name || strings.HasPrefix(name, f.name+".")
}

// clear removes the record and the folder, if there is nothing else in it.
func (f folderRecord) clear() error {
	inside, err := os.ReadDir(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	marks := make([]string, 0, len(inside))
	for _, in := range inside {
		if !f.owns(in.Name()) {
			return nil
		}
		marks = append(marks, filepath.Join(f.dir, in.Name()))
	}
	if err := remove(marks...); err != nil {
		return err
	}
	return os.Remove(f.dir)
}

// removeAll removes the folder, what says that it may be removed last.
func (f folderRecord) removeAll() error {
	inside, err := os.ReadDir(f.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, in := range inside {
		if !f.owns(in.Name()) {
			if err := clone.Remove(filepath.Join(f.dir, in.Name())); err != nil {
				return err
			}
		}
	}
	return f.clear()
}

func remove(paths ...string) error {
	var all error
	for _, p := range paths {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// keptSession is the record of a session in its folder.
type keptSession struct {
	ID      string          `json:"id"`
	Owner   string          `json:"owner,omitempty"`
	Kind    string          `json:"kind"`
	Created time.Time       `json:"created"`
	Used    time.Time       `json:"used"`
	Parent  string          `json:"parent,omitempty"`
	Token   string          `json:"token,omitempty"` // its hash
	Catalog string          `json:"catalog,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func keptOf(s store.Session) keptSession {
	return keptSession{s.ID, s.Owner, s.Kind, s.Created, s.Used, s.Parent, s.Token, s.Catalog, s.Data}
}

func (k keptSession) session() store.Session {
	return store.Session{
		ID: k.ID, Owner: k.Owner, Kind: k.Kind, Created: k.Created, Used: k.Used,
		Parent: k.Parent, Token: k.Token, Catalog: k.Catalog, Data: k.Data,
	}
}

// keptSnapshot is the record of a snapshot in its folder.
type keptSnapshot struct {
	ID      string          `json:"id"`
	Name    string          `json:"name,omitempty"`
	Owner   string          `json:"owner,omitempty"`
	Session string          `json:"session,omitempty"`
	Created time.Time       `json:"created"`
	Auto    bool            `json:"auto,omitempty"`
	Size    int64           `json:"size"`
	Call    int64           `json:"call,omitempty"`
	Catalog string          `json:"catalog,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func keptSnapshotOf(s store.Snapshot) keptSnapshot {
	return keptSnapshot{s.ID, s.Name, s.Owner, s.Session, s.Created, s.Auto, s.Size, s.Call, s.Catalog, s.Data}
}

func (k keptSnapshot) snapshot() store.Snapshot {
	return store.Snapshot{
		ID: k.ID, Name: k.Name, Owner: k.Owner, Session: k.Session, Created: k.Created,
		Auto: k.Auto, Size: k.Size, Call: k.Call, Catalog: k.Catalog, Data: k.Data,
	}
}
