package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// damagedKey is the key of the meta table with the first block of the index of
// calls that can't be trusted.
const damagedKey = "calls_damaged"

// damagedBlock is the failure to read the block that begins with this Seq. SQLite
// does not notice when the bytes of a row have changed.
type damagedBlock struct{ first int64 }

func (e *damagedBlock) Error() string {
	return fmt.Sprintf("the block that begins with call %d is damaged", e.first)
}

// wrapCalls is wrap for the index of calls. A damaged block is noted, so that the
// next Open forgets it and all blocks after it: the journal adds what an index
// lacks at the end.
func (d *DB) wrapCalls(step string, err error) error {
	var b *damagedBlock
	if !errors.As(err, &b) {
		return d.wrap(step, err)
	}
	// The caller's context may have ended.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	noted := d.exec(ctx, "note the damage", "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE CAST(excluded.value AS INTEGER) < CAST(value AS INTEGER)",
		damagedKey, strconv.FormatInt(b.first, 10))
	return errors.Join(fmt.Errorf("%s: the index of calls in the state database %s is damaged; restart the gateway, which rebuilds it from the journal: %w", step, d.path, err), noted)
}

// dropDamaged forgets the part of the index of calls that was noted as damaged.
func (d *DB) dropDamaged(ctx context.Context) error {
	const step = "forget the damaged part of the index of calls"
	var first int64
	err := d.db.QueryRowContext(ctx, "SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?", damagedKey).Scan(&first)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return d.wrap(step, err)
	}
	// Before the note: repeating it does no harm.
	if err := d.exec(ctx, step, "DELETE FROM calls WHERE first >= ?", first); err != nil {
		return err
	}
	return d.exec(ctx, step, "DELETE FROM meta WHERE key = ?", damagedKey)
}
