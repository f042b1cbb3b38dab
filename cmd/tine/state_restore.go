package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/sqlite"
)

// fromFolders is the source of a restore that has no database to begin with.
const fromFolders = "folders"

type restoreFlags struct {
	list, dry, yes bool
	from           string
}

func newStateRestoreCmd(c *cli) *cobra.Command {
	var o restoreFlags
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Restore the database from a backup",
		Long: `Replaces the database with a backup: the newest intact one, unless --from names
another. The command first shows the effects.

  - The old database, damaged or not, is moved to set-aside/.
  - Sessions and snapshots that are newer than the backup are restored from their
    own folders, with their full state.
  - Sessions whose folders no longer exist were closed after the backup, and are
    closed again. A session that never stored anything has no folder, and is
    restored.
  - Tokens, run-time changes of servers and logins to servers are as they were at
    the time of the backup. Later changes are lost, and so are later tokens. The
    command first shows how many changes of tokens and servers are lost.
  - Tokens do not work until they are confirmed with "tine token confirm", because
    the backup can contain tokens that were revoked later.
  - If there were tokens and none is restored, the gateway refuses callers without
    a token until you create one, or admit all callers on this machine again with
    "tine token confirm --all".
  - Programs that an earlier gateway left running keep running.

Without a backup, or with --from folders, the database is rebuilt from the records
in the folders of sessions and snapshots. With --from tine.db the command recovers
what is readable of the existing database.`,
		Example: `  tine state restore --list
  tine state restore --dry-run
  tine state restore --yes
  tine state restore --from ~/.local/state/tine/backups/tine-20261116T101112.345Z-0123456789abcdef.db`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.list {
				return c.listBackups(cmd.Context())
			}
			return c.restoreState(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.list, "list", false, "list the backups and exit")
	f.BoolVar(&o.dry, "dry-run", false, "show the effects and change nothing")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	f.StringVar(&o.from, "from", "", "backup or database to restore, by name or path, or \"folders\" (default the newest intact backup)")
	return cmd
}

// restoreResult is what --json prints.
type restoreResult struct {
	From          foundBackup `json:"from"`
	Done          bool        `json:"done"`
	SetAside      string      `json:"set_aside,omitempty"`
	Back          []string    `json:"sessions_back"`
	Corrected     []string    `json:"corrected"` // sessions and snapshots
	Closed        []string    `json:"sessions_closed"`
	SnapshotsBack []string    `json:"snapshots_back"`
	SnapshotsGone []string    `json:"snapshots_gone"`
	Unreadable    []string    `json:"unreadable"`
	Unconfirmed   []string    `json:"tokens_unconfirmed"`
	// TokensLost is set if there were tokens, or that is unknown, and none came
	// back: callers without a token are refused until an operator confirms.
	TokensLost bool `json:"tokens_lost"`
	// Missing counts the changes of tokens and of run-time switches that were made
	// after the backup. It is left out if the state folder does not have the count.
	Missing *int64 `json:"access_changes_missing,omitempty"`
}

func (r *restoreResult) found(f session.Reconciled) {
	r.Back, r.Closed, r.Corrected = nonNil(f.Back), nonNil(f.Closed), nonNil(f.Corrected)
	r.SnapshotsBack, r.SnapshotsGone, r.Unreadable = nonNil(f.SnapshotsBack), nonNil(f.SnapshotsGone), nonNil(f.Unreadable)
}

func nonNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func (c *cli) restoreState(ctx context.Context, o restoreFlags) error {
	state, unlock, err := c.lockState(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	from, err := c.chooseBackup(ctx, state, o.from)
	if err != nil {
		return err
	}
	r := restoring{state: state, place: filepath.Join(state, restoringPlace), flag: c.stateFlag(state)}
	defer r.clear()
	res, err := r.prepare(ctx, from)
	if err != nil {
		return err
	}
	if o.dry && c.flags.json {
		return c.printJSON(res)
	}
	if !c.flags.json {
		c.sayRestore(res)
	}
	if o.dry {
		return nil
	}
	if err := c.agreed(ctx, o.yes, "Restore it?"); err != nil {
		return err
	}
	if err := r.do(ctx, res, c.now()); err != nil {
		return fmt.Errorf("%w; nothing was removed, and it can be run again", err)
	}
	if c.flags.json {
		return c.printJSON(res)
	}
	fmt.Fprintln(c.stdout, visible("restored; the old database is in "+res.SetAside, c.outTerminal))
	if len(res.Unconfirmed) > 0 {
		c.say("no token works before it is confirmed: see %s, then %s", c.own("tine token list"), c.own("tine token confirm --all"))
	}
	if res.TokensLost {
		c.sayTokensLost()
	}
	return nil
}

func (c *cli) sayRestore(r *restoreResult) {
	if r.From.Path == fromFolders {
		c.say("no backup is used: the database is rebuilt from the folders of sessions and snapshots")
	} else {
		c.say("from %s, made %s ago: %s, %s, %s", r.From.Path, c.age(r.From.Made), count(r.From.Sessions, "open session"), count(r.From.Snapshots, "snapshot"), count(r.From.Tokens, "token"))
	}
	list := func(ids []string, format string) {
		if len(ids) > 0 {
			c.say(format, len(ids))
			for _, id := range ids {
				c.say("    %s", id)
			}
		}
	}
	list(r.Back, "  newer sessions that come back from their folders: %d")
	list(r.SnapshotsBack, "  newer snapshots that come back from their folders: %d")
	list(r.Corrected, "  sessions and snapshots whose record in the folder replaces the backup's, which differs: %d")
	list(r.Closed, "  sessions that are closed, because their folders are gone or say so: %d")
	list(r.SnapshotsGone, "  snapshots that are deleted, because their folders are gone or say so: %d")
	list(r.Unreadable, "  folders that stay as they are, because their records can't be read: %d")
	list(r.Unconfirmed, "  tokens that do not work before they are confirmed: %d")
	c.sayMissing(r)
	if r.TokensLost {
		c.say("  no token comes back, though there may have been some: the gateway refuses callers without a token until you make one or confirm that there is none")
	}
}

// sayMissing prints the changes after the backup, which are lost.
func (c *cli) sayMissing(r *restoreResult) {
	since, at := "made after this backup", "as they were at the backup"
	if r.From.Path == fromFolders {
		since, at = "that the folders do not have", "gone"
	}
	switch {
	case r.Missing == nil:
		c.say("  changes of tokens and switches %s are missing; how many is not known", since)
	case *r.Missing > 0:
		c.say("  changes of tokens and switches %s, which are missing: %d", since, *r.Missing)
	}
	if r.Missing == nil || *r.Missing > 0 {
		c.say("    a token made since then is gone: make it again; one revoked since then is listed again: revoke it")
	}
	c.say("  logins to servers are %s", at)
}

// restoring makes the next database of a state folder in a separate place, and then
// replaces the present one.
type restoring struct{ state, place, flag string }

func (r restoring) path() string { return filepath.Join(r.place, "tine.db") }

// clear removes an unfinished database, also one of a killed process.
func (r restoring) clear() error { return os.RemoveAll(r.place) }

// prepare makes the next database, and finds out what will be changed in it.
func (r restoring) prepare(ctx context.Context, from foundBackup) (*restoreResult, error) {
	if err := errors.Join(r.clear(), os.MkdirAll(r.place, 0o700)); err != nil {
		return nil, err
	}
	if from.Path != fromFolders {
		if err := sqlite.CopyTo(ctx, from.Path, r.path()); err != nil {
			return nil, fmt.Errorf("%w; choose another with --from, see %s", err, withFlag("tine state restore --list", r.flag))
		}
	}
	if from.Problem != "" { // its content is known only now
		sum, err := sqlite.Inspect(ctx, r.path())
		if err != nil {
			return nil, err
		}
		from.Sessions, from.Snapshots, from.Tokens = sum.Sessions, sum.Snapshots, sum.Tokens
	}
	res := &restoreResult{From: from, Unconfirmed: []string{}}
	err := r.with(ctx, func(db *sqlite.DB) error {
		found, err := session.Reconcile(ctx, db, r.state, true, true)
		if err != nil {
			return err
		}
		res.found(found)
		tokens, err := db.Tokens(ctx)
		for _, t := range tokens {
			res.Unconfirmed = append(res.Unconfirmed, t.Name)
		}
		if err != nil {
			return err
		}
		was, known, err := r.access()
		if err != nil {
			return err
		}
		have, err := db.Access(ctx)
		if err != nil {
			return err
		}
		if known {
			missing := max(0, was.Changes-have.Changes)
			res.Missing = &missing
		}
		lost, err := db.TokensLost(ctx)
		res.TokensLost = len(tokens) == 0 && (lost || was.Guarded || !known)
		return err
	})
	return res, err
}

// access reads the access file, which is apart from the database.
func (r restoring) access() (was sqlite.Access, known bool, err error) {
	was, known, err = sqlite.ReadAccess(r.state)
	if errors.Is(err, sqlite.ErrAccessFile) {
		return was, false, nil
	}
	return was, known, err
}

func (r restoring) with(ctx context.Context, do func(*sqlite.DB) error) error {
	db, err := sqlite.Open(ctx, r.path())
	if err != nil {
		return err
	}
	return errors.Join(do(db), db.Close())
}

// do makes the changes in the next database and puts it in place. Until the last
// step the state folder is as it was, or has no database and is not served: it can
// be repeated.
func (r restoring) do(ctx context.Context, res *restoreResult, now time.Time) error {
	var access sqlite.Access
	err := r.with(ctx, func(db *sqlite.DB) (err error) {
		access, err = r.adapt(ctx, db, res)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := sqlite.Inspect(ctx, r.path()); err != nil {
		return err
	}
	if err := sqlite.SyncFile(r.path()); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.state, restoredFile), []byte(res.From.Path+"\n"), 0o600); err != nil {
		return err
	}
	dir, err := beginAside(r.state, "database", now)
	if err != nil {
		return err
	}
	if err := moveAside(r.state, dir, databaseNames()...); err != nil {
		return err
	}
	if err := os.Rename(r.path(), databaseOf(r.state)); err != nil {
		return err
	}
	res.Done, res.SetAside = true, dir
	return errors.Join(sqlite.SyncDir(r.state), sqlite.WriteAccess(r.state, access), endAside(dir))
}

// adapt makes a database match folders that are newer, and returns the content of
// its access file.
func (r restoring) adapt(ctx context.Context, db *sqlite.DB, res *restoreResult) (sqlite.Access, error) {
	if id, err := store.ReadID(r.state); err != nil {
		return sqlite.Access{}, err
	} else if id != "" {
		if err := db.SetGatewayID(ctx, id); err != nil {
			return sqlite.Access{}, err
		}
	}
	tokens, err := db.Tokens(ctx)
	for _, t := range tokens {
		err = errors.Join(err, db.ChangeToken(ctx, t.Name, func(t *store.Token) (*store.Token, error) {
			t.Unconfirmed = true
			return t, nil
		}))
	}
	// Further tokens of sessions may have been revoked since; a run that is made again has
	// another one.
	further, listErr := db.SessionTokens(ctx)
	err = errors.Join(err, listErr)
	for _, t := range further {
		err = errors.Join(err, db.DeleteSessionTokens(ctx, t.ID))
	}
	// Another instance may have the folder by now.
	handles, listErr := db.Handles(ctx)
	err = errors.Join(err, listErr)
	for _, h := range handles {
		err = errors.Join(err, db.DeleteHandle(ctx, h.Key))
	}
	// Pending creations have probably been answered since.
	if err = errors.Join(err, db.DropCreations(ctx, time.Time{}, true), db.RestoreEvents(ctx)); err != nil {
		return sqlite.Access{}, err
	}
	found, err := session.Reconcile(ctx, db, r.state, true, false)
	if err != nil {
		return sqlite.Access{}, err
	}
	res.found(found)
	was, known, err := r.access()
	if err != nil {
		return sqlite.Access{}, err
	}
	return db.RestoreAccess(ctx, was, known)
}
