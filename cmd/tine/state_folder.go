package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/journal"
	"github.com/tine-mcp/tine/internal/store/sqlite"
)

// Parts of a state folder besides the database.
const (
	asideFolder    = "set-aside"
	backupFolder   = "backups"
	restoredFile   = "restored"  // says when the database was restored from a backup
	restoringPlace = "restoring" // where the next database is made
)

// An inventory counts what a state folder holds besides its database.
type inventory struct {
	Sessions  int `json:"sessions"` // folders
	States    int `json:"states"`   // other folders of states: of shared servers, and what was being prepared
	Snapshots int `json:"snapshots"`
	Layers    int `json:"layers"`    // files
	Instances int `json:"instances"` // folders
	Journal   int `json:"journal"`   // files
	Engines   int `json:"engines"`   // records of container engines and orchestrators
	Backups   int `json:"backups"`
	// Access counts the changes of tokens and of what is switched at run time.
	Access int64 `json:"access_changes"`
}

func takeInventory(state string) (inventory, error) {
	var inv inventory
	var failed error
	count := func(to *int, pattern string, counts func(path string) bool) {
		entries, err := glob(state, pattern)
		failed = errors.Join(failed, err)
		for _, path := range entries {
			if counts == nil || counts(path) {
				*to++
			}
		}
	}
	filled := func(path string) bool {
		inside, err := os.ReadDir(path)
		return err == nil && len(inside) > 0
	}
	ofSession := func(path string) bool { return strings.HasPrefix(filepath.Base(path), "ses_") }
	count(&inv.Sessions, "sessions", func(path string) bool { return ofSession(path) && filled(path) })
	count(&inv.States, "sessions", func(path string) bool { return !ofSession(path) && filled(path) })
	count(&inv.Snapshots, "snapshots", filled)
	count(&inv.Layers, "layers/*", nil)
	count(&inv.Instances, "instances", func(path string) bool { return filepath.Ext(path) != ".handle" })
	count(&inv.Journal, "journal", func(path string) bool { return filepath.Base(path) != journal.UnderwayName })
	count(&inv.Engines, "docker", nil)
	count(&inv.Engines, "remote", nil)
	count(&inv.Backups, backupFolder, nil)
	access, _, err := sqlite.ReadAccess(state)
	if errors.Is(err, sqlite.ErrAccessFile) {
		err, access.Changes = nil, 1 // or more
	}
	inv.Access = access.Changes
	return inv, errors.Join(failed, err)
}

// glob lists the entries of a folder, or with /* at its end those of all its
// subfolders.
func glob(state, pattern string) ([]string, error) {
	dir, deep := strings.CutSuffix(pattern, "/*")
	dirs := []string{filepath.Join(state, dir)}
	if deep {
		var err error
		if dirs, err = listDir(dirs[0]); err != nil {
			return nil, err
		}
	}
	var all []string
	for _, d := range dirs {
		found, err := listDir(d)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func listDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []string
	for _, e := range entries {
		all = append(all, filepath.Join(dir, e.Name()))
	}
	return all, err
}

func (i inventory) empty() bool { return i == inventory{} }

// String names what there is.
func (i inventory) String() string {
	var parts []string
	add := func(n int, one, many string) {
		switch {
		case n == 1:
			parts = append(parts, "1 "+one)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", n, many))
		}
	}
	add(i.Sessions, "folder of a session", "folders of sessions")
	add(i.States, "folder of shared servers", "folders of shared servers and preparations")
	add(i.Snapshots, "snapshot", "snapshots")
	add(i.Layers, "layer", "layers")
	add(i.Instances, "instance", "instances")
	add(i.Journal, "journal file", "journal files")
	add(i.Engines, "record of a container engine or orchestrator", "records of container engines and orchestrators")
	add(i.Backups, "backup", "backups")
	add(int(i.Access), "change of tokens or switches", "changes of tokens and switches")
	return allOf(parts)
}

// allOf joins a list as in a sentence.
func allOf(parts []string) string {
	switch n := len(parts); n {
	case 0:
		return "nothing"
	case 1:
		return parts[0]
	default:
		return strings.Join(parts[:n-1], ", ") + " and " + parts[n-1]
	}
}

// openDatabase opens the database of a state folder that the caller has locked, and
// returns the id of its gateway. A new database is made only in an empty folder: a
// new one beside existing data would treat all of it as unowned. Flag names the
// folder in commands; see cli.stateFlag.
func openDatabase(ctx context.Context, state, flag string) (_ *sqlite.DB, id string, err error) {
	path := databaseOf(state)
	why, err := sqlite.Missing(ctx, path)
	if err != nil {
		return nil, "", err
	}
	if why != "" {
		inv, err := takeInventory(state)
		if err != nil {
			return nil, "", fmt.Errorf("look through the state folder: %w", err)
		}
		if !inv.empty() {
			return nil, "", fmt.Errorf("the state database %s %s, but the state folder holds %s; nothing was changed. "+
				"Run `%s` to restore the database from a backup, or `%s` to move the state aside and begin anew", path, why, inv,
				withFlag("tine state restore", flag), withFlag("tine state set-aside", flag))
		}
	}
	db, err := sqlite.OpenState(ctx, path, flag)
	if err != nil {
		return nil, "", err
	}
	if id, err = agreeOnID(ctx, state, flag, db); err != nil {
		return nil, "", errors.Join(err, db.Close())
	}
	return db, id, nil
}

// agreeOnID returns the id of a state folder's gateway, which the folder and the
// database both have.
func agreeOnID(ctx context.Context, state, flag string, db store.Owner) (string, error) {
	id, err := store.ReadID(state)
	if err != nil {
		return "", err
	}
	if id == "" {
		if id, err = db.GatewayID(ctx); err == nil {
			err = store.WriteID(state, id)
		}
		return id, err
	}
	if err := db.SetGatewayID(ctx, id); err != nil {
		return "", fmt.Errorf("%w: the database and %s disagree about whose this state folder is, as when a database of another folder was put here; "+
			"run `%s`, or restore the right one of the two", err, filepath.Join(state, "id"), withFlag("tine state restore", flag))
	}
	return id, nil
}

// restoredFor is how long after a restore nothing is removed as unowned.
const restoredFor = 7 * 24 * time.Hour

// restoredLately reports whether the database was restored from a backup recently.
func restoredLately(state string, now time.Time) bool {
	info, err := os.Stat(filepath.Join(state, restoredFile))
	return err == nil && now.Sub(info.ModTime()) < restoredFor
}
