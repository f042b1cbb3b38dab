package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/sqlite"
)

// A foundBackup is a backup that can be restored, or the reason why it can't.
type foundBackup struct {
	Path      string    `json:"path"`
	Made      time.Time `json:"made,omitzero"`
	Sessions  int       `json:"sessions"`
	Snapshots int       `json:"snapshots"`
	Tokens    int       `json:"tokens"`
	// Faulty is set if a fault was known when it was made; such a backup is used
	// only if there is no other.
	Faulty  bool   `json:"faulty,omitempty"`
	Problem string `json:"problem,omitempty"`
}

// findBackups lists the backups of a state folder, the newest first and those
// from before an upgrade last.
func findBackups(ctx context.Context, state string) ([]foundBackup, error) {
	regular, err := sqlite.Backups(filepath.Join(state, backupFolder))
	if err != nil {
		return nil, err
	}
	upgrades, err := sqlite.Upgrades(databaseOf(state))
	if err != nil {
		return nil, err
	}
	all := []foundBackup{}
	for _, b := range append(regular, upgrades...) {
		found := inspectBackup(ctx, state, b.Path, b.Made)
		found.Faulty = b.Faulty
		all = append(all, found)
	}
	return all, nil
}

func inspectBackup(ctx context.Context, state, path string, made time.Time) foundBackup {
	f := foundBackup{Path: path, Made: made}
	sum, err := sqlite.Inspect(ctx, path)
	if err == nil {
		f.Sessions, f.Snapshots, f.Tokens = sum.Sessions, sum.Snapshots, sum.Tokens
		var id string
		if id, err = store.ReadID(state); err == nil && id != "" && sum.Gateway != "" && sum.Gateway != id {
			err = fmt.Errorf("it is of gateway %s, and this folder is of %s", sum.Gateway, id)
		}
	}
	if err != nil {
		f.Problem = err.Error()
	}
	return f
}

func (c *cli) listBackups(ctx context.Context) error {
	state, err := c.stateDir()
	if err != nil {
		return err
	}
	all, err := findBackups(ctx, state)
	if err != nil {
		return err
	}
	if err := c.list(map[string]any{"backups": all}, c.backupTable(all), "there is no backup in "+state); err != nil || c.flags.json {
		return err
	}
	for _, b := range all {
		if b.Problem != "" {
			c.say("%s: %s", filepath.Base(b.Path), b.Problem)
		}
	}
	return nil
}

func (c *cli) backupTable(all []foundBackup) *table {
	return listing(all, columns("MADE", "SESSIONS", "SNAPSHOTS", "TOKENS", "STATE", "FILE"), func(b foundBackup) []cell {
		row := cells(c.age(b.Made)+" ago", strconv.Itoa(b.Sessions), strconv.Itoa(b.Snapshots), strconv.Itoa(b.Tokens), "sound", b.Path)
		switch {
		case b.Problem != "":
			row[4] = cell{"not usable", red}
		case b.Faulty:
			row[4] = cell{"faulty", red}
		}
		return row
	})
}

// chooseBackup finds the backup to restore.
func (c *cli) chooseBackup(ctx context.Context, state, from string) (foundBackup, error) {
	switch from {
	case "":
		all, err := findBackups(ctx, state)
		if err != nil {
			return foundBackup{}, err
		}
		for _, faulty := range []bool{false, true} {
			for _, b := range all {
				if b.Problem == "" && b.Faulty == faulty {
					return b, nil
				}
			}
		}
		return foundBackup{Path: fromFolders}, nil
	case fromFolders:
		return foundBackup{Path: fromFolders}, nil
	}
	for _, path := range []string{from, filepath.Join(state, backupFolder, from), filepath.Join(state, from)} {
		info, err := os.Stat(path)
		if err != nil || info.IsDir() {
			continue
		}
		if path, err = filepath.Abs(path); err != nil {
			return foundBackup{}, err
		}
		b := inspectBackup(ctx, state, path, info.ModTime())
		// Of the database itself everything readable is taken.
		if b.Problem != "" && path != databaseOf(state) {
			return b, fmt.Errorf("%s can't be restored: %s", path, b.Problem)
		}
		return b, nil
	}
	return foundBackup{}, usagef("there is no backup %s; see %s", from, c.own("tine state restore --list"))
}

const (
	keptBackups = 3
	backupEvery = 24 * time.Hour
	backupCheck = time.Hour // how often the age of the last backup is checked
	backupTime  = time.Minute
)

// backup copies the state database. A failure is logged: the gateway continues, and
// earlier backups stay.
func (p *service) backup(serving context.Context) {
	ctx, cancel := context.WithTimeout(serving, backupTime)
	defer cancel()
	path, err := p.store.Backup(ctx, filepath.Join(p.o.State, backupFolder), time.Now(), keptBackups, func(ctx context.Context, db *sqlite.DB) ([]string, error) {
		return session.Faults(ctx, db, p.o.State)
	})
	if err != nil && path != "" {
		p.o.Log.Error("the state database has faults; the next start of the gateway corrects it from the folders", "err", err)
		return
	}
	if err != nil && serving.Err() != nil {
		return // the gateway stops, and makes one as it ends
	}
	if err != nil {
		p.o.Log.Error("the state database is not backed up; earlier backups stay", "err", err)
		return
	}
	p.o.Log.Debug("state database backed up", "file", path)
}

// backups makes one whenever the last is a day old.
func (p *service) backups(ctx context.Context) {
	tick := time.NewTicker(backupCheck)
	defer tick.Stop()
	for {
		all, err := sqlite.Backups(filepath.Join(p.o.State, backupFolder))
		if err != nil {
			p.o.Log.Error("backups of the state database can't be listed", "err", err)
		}
		if len(all) == 0 || time.Since(all[0].Made) > backupEvery {
			p.backup(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
