package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store/sqlite"
)

const (
	keptBackups = 3
	backupEvery = 24 * time.Hour
	backupCheck = time.Hour // how often it is looked whether one is due
	backupTime  = time.Minute
)

// backup copies the state database besides. A failure is logged: the gateway does
// its work, and the backups that there are stay.
func (p *service) backup(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, backupTime)
	defer cancel()
	path, err := p.store.Backup(ctx, filepath.Join(p.o.State, backupFolder), time.Now(), keptBackups, func(ctx context.Context, db *sqlite.DB) ([]string, error) {
		return session.Faults(ctx, db, p.o.State)
	})
	if err != nil && path != "" {
		p.o.Log.Error("the state database has faults; a start of the gateway takes what the folders have right", "err", err)
		return
	}
	if err != nil {
		p.o.Log.Error("the state database is not backed up; the backups before stay", "err", err)
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
