package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/sqlite"
)

func newStateCmd(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "state",
		Short: "Repair a damaged state folder, or set it aside",
		Long: `Repairs the state folder of a gateway that does not start because its database is
missing or damaged. The commands delete nothing, and refuse to run while a gateway
uses the folder.

The gateway backs up its database at every orderly stop and once a day, and keeps
the last three backups. The state of sessions is not in the database: each session
has its own folder, with its own record.`,
		Example: `  tine state restore --list
  tine state restore
  tine state set-aside`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(newStateRestoreCmd(c), newStateSetAsideCmd(c))
	return cmd
}

// lockState locks an existing state folder for a command.
func (c *cli) lockState(ctx context.Context) (state string, unlock func(), err error) {
	if state, err = c.stateDir(); err != nil {
		return "", nil, err
	}
	if info, err := os.Stat(state); err != nil || !info.IsDir() {
		return "", nil, usagef("there is no state folder %s; name another with --state", state)
	}
	unlock, err = store.LockForCommand(ctx, state)
	return state, unlock, inUse(err, "stop the gateway first")
}

// inUse adds to the error of a lock what to do about a gateway that has it. A command
// that has it ends by itself. Other errors stay.
func inUse(err error, advice string) error {
	var locked *store.LockedError
	switch {
	case !errors.As(err, &locked):
		return err
	case locked.Command:
		advice = "try again when it has ended"
	}
	return fmt.Errorf("%w; %s", err, advice)
}

// agreed asks for confirmation on a terminal; elsewhere --yes is needed.
func (c *cli) agreed(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	if !c.inTerminal {
		return usagef("nothing was changed; give --yes to do it")
	}
	ok, err := c.confirm(ctx, question)
	if err == nil && !ok {
		err = usagef("nothing was changed")
	}
	return err
}

// asideTime is the format of the names of folders in set-aside/.
const asideTime = "20060102T150405Z"

// unfinished marks a folder into which things are being moved; if the command is
// killed, its next run moves the rest there too.
const unfinished = "unfinished"

// beginAside makes the folder that things are moved into, or finds the one of an
// interrupted run.
func beginAside(state, what string, now time.Time) (string, error) {
	parent := filepath.Join(state, asideFolder)
	earlier, err := listDir(parent)
	if err != nil {
		return "", err
	}
	for _, dir := range earlier {
		b, err := os.ReadFile(filepath.Join(dir, unfinished))
		if err == nil && string(b) == what {
			return dir, nil
		}
	}
	dir := filepath.Join(parent, now.UTC().Format(asideTime)+"-"+what)
	for n := 2; ; n++ {
		if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
			break
		}
		dir = filepath.Join(parent, fmt.Sprintf("%s-%s-%d", now.UTC().Format(asideTime), what, n))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, unfinished), []byte(what), 0o600)
}

// moveAside moves existing parts of the state folder into a folder that beginAside
// made. Nothing in there is overwritten.
func moveAside(state, dir string, names ...string) error {
	for _, name := range names {
		from, to := filepath.Join(state, name), filepath.Join(dir, name)
		if _, err := os.Lstat(from); errors.Is(err, os.ErrNotExist) {
			continue
		}
		for n := 2; ; n++ {
			if _, err := os.Lstat(to); errors.Is(err, os.ErrNotExist) {
				break
			}
			to = filepath.Join(dir, fmt.Sprintf("%s-%d", name, n))
		}
		if err := os.Rename(from, to); err != nil {
			return fmt.Errorf("set %s aside: %w", name, err)
		}
	}
	return errors.Join(sqlite.SyncDir(dir), sqlite.SyncDir(state))
}

// endAside marks that all is moved.
func endAside(dir string) error { return os.Remove(filepath.Join(dir, unfinished)) }

// databaseNames are the files of the database, the main one first: a folder without
// it is not served.
func databaseNames() []string { return []string{"tine.db", "tine.db-wal", "tine.db-shm"} }
