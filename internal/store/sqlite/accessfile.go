package sqlite

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// AccessFile is a file beside the database that says how often access was changed.
// SQLite can't tell a log that lost its last transaction from one whose writer was
// killed, so without it a token that was revoked last would work again.
const AccessFile = "access.json"

// Access is what the file says, which must match the database.
type Access struct {
	// Changes counts the changes of tokens and of what is switched at run time.
	Changes int64 `json:"changes"`
	// Guarded is set if callers without a token are refused: there are tokens, or
	// there were and they are lost.
	Guarded bool `json:"guarded"`
	// Content is a digest of the tokens and the switches, whose rows have no
	// checksums of their own. Empty in a file of an earlier version.
	Content string `json:"content,omitempty"`
}

// ErrAccessFile is the error of a file whose content can't be trusted.
var ErrAccessFile = errors.New("the state folder is damaged")

type sealedAccess struct {
	Access
	Sum string `json:"sum"`
}

func (a Access) sum() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %t%s", a.Changes, a.Guarded, a.Content))
	return hex.EncodeToString(sum[:8])
}

// ReadAccess reads the file of a state folder; ok is false where there is none. It
// fails with ErrAccessFile where the content can't be trusted.
func ReadAccess(dir string) (a Access, ok bool, err error) {
	path := filepath.Join(dir, AccessFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return a, false, nil
	}
	if err != nil {
		return a, false, fmt.Errorf("read how often access was changed: %w", err)
	}
	var s sealedAccess
	if err := json.Unmarshal(b, &s); err != nil || s.Sum != s.sum() {
		return a, false, fmt.Errorf("%w: the checksum of %s, which counts the changes of tokens and switches, is wrong", ErrAccessFile, path)
	}
	return s.Access, true, nil
}

// WriteAccess writes the file of a state folder.
func WriteAccess(dir string, a Access) error {
	finish, err := prepareAccess(dir, a)
	if err == nil {
		err = finish()
	}
	return err
}

// prepareAccess does all that can fail for want of space or permission, so that
// finish, which puts the file in place, hardly ever does.
func prepareAccess(dir string, a Access) (finish func() error, err error) {
	path := filepath.Join(dir, AccessFile)
	b, err := json.Marshal(sealedAccess{a, a.sum()})
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path+PartSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		_, err = f.Write(append(b, '\n'))
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("write how often access was changed: %w", err)
	}
	return func() error {
		err := os.Rename(path+PartSuffix, path)
		if err == nil {
			err = SyncDir(dir)
		}
		if err != nil {
			return fmt.Errorf("write how often access was changed: %w", err)
		}
		return nil
	}, nil
}
