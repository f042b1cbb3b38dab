package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/storetest"
)

var backupDay = time.Date(2026, 11, 16, 10, 0, 0, 0, time.UTC)

// filled is a database with something in every kind of table, which is open.
func filled(t *testing.T) *DB {
	t.Helper()
	ctx := t.Context()
	d := mustOpen(t, filepath.Join(t.TempDir(), "o'tine.db"), schema)
	t.Cleanup(func() { d.Close() })
	for _, err := range []error{
		d.SetGatewayID(ctx, "gw_1"),
		d.PutSessions(ctx, store.Session{ID: "ses_a", Token: "h"}, store.Session{ID: "ses_b", Closed: backupDay}),
		d.PutEvents(ctx, store.Event{Session: "ses_a", Kind: "opened"}, store.Event{Session: "ses_a", Kind: "forked"}),
		d.PutSnapshot(ctx, store.Snapshot{ID: "snp_a", Catalog: "k", Servers: json.RawMessage(`[]`)}),
		storetest.PutToken(ctx, d, store.Token{Name: "ann"}),
		d.PutHandle(ctx, store.Handle{Key: "h"}),
		d.PutCalls(ctx, []store.Call{{Seq: 1, Server: "s", Session: "ses_a"}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func TestBackup(t *testing.T) {
	d := filled(t)
	dir := filepath.Join(t.TempDir(), "it's", "backups")
	var paths []string
	for i := range 5 {
		path, err := d.Backup(t.Context(), dir, backupDay.Add(time.Duration(i)*time.Hour), 3, nil)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	all, err := Backups(dir)
	if err != nil || len(all) != 3 || all[0].Path != paths[4] || all[2].Path != paths[2] || !all[0].Made.Equal(backupDay.Add(4*time.Hour)) {
		t.Fatalf("there are %+v, %v", all, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 3 {
		t.Errorf("there is more in the folder: %v", left)
	}
	if st, err := os.Stat(paths[4]); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v, %v", st.Mode(), err)
	}
	got, err := Inspect(t.Context(), paths[4])
	if want := (Summary{"gw_1", 1, 1, 1}); err != nil || got != want {
		t.Errorf("it holds %+v, %v", got, err)
	}
	b := mustOpen(t, paths[4], schema)
	defer b.Close()
	calls, err := b.Calls(t.Context(), store.CallFilter{})
	if err != nil || len(calls) != 0 {
		t.Errorf("the index of calls is in it: %v, %v", calls, err)
	}
	if s, ok, err := b.Session(t.Context(), "ses_a"); err != nil || !ok || s.Token != "h" {
		t.Errorf("its session is %+v, %v", s, err)
	}
	e := store.Event{Session: "ses_a"}
	if err := b.PutEvents(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if events := must(b.Events(t.Context(), "ses_a")); len(events) != 3 || events[2].N != 3 {
		t.Errorf("its events are %+v", events)
	}
}

// A backup that fails, or was cut off, takes nothing away.
func TestBackupThatFails(t *testing.T) {
	d := filled(t)
	dir := t.TempDir()
	for i := range 3 {
		if _, err := d.Backup(t.Context(), dir, backupDay.Add(time.Duration(i)*time.Hour), 3, nil); err != nil {
			t.Fatal(err)
		}
	}
	before, err := Backups(dir)
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Backup(over, dir, backupDay.Add(9*time.Hour), 3, nil); err == nil {
		t.Error("it was called off and did not fail")
	}
	if after, err := Backups(dir); err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("there are %v, %v", after, err)
	}
	// A gateway that was killed leaves parts, which the next backup removes.
	part := filepath.Join(dir, backupPrefix+"20261116T150000.000Z"+PartSuffix)
	for _, p := range []string{part, part + "-journal"} {
		if err := os.WriteFile(p, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := Backups(dir); err != nil || len(all) != 3 {
		t.Errorf("a part counts: %v, %v", all, err)
	}
	if _, err := d.Backup(t.Context(), dir, backupDay.Add(10*time.Hour), 3, nil); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 3 {
		t.Errorf("there is %v", left)
	}
}

// A change of any byte of a backup is noticed.
func TestBackupThatIsDamaged(t *testing.T) {
	d := filled(t)
	path, err := d.Backup(t.Context(), t.TempDir(), backupDay, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(whole); at += 997 {
		bad := bytes.Clone(whole)
		bad[at] ^= 0x20
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Inspect(t.Context(), path); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("byte %d is another one: %v", at, err)
		}
	}
	for _, n := range []int{0, 100, len(whole) / 2} {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Inspect(t.Context(), path); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("%d bytes are left: %v", n, err)
		}
	}
}

// A damaged log takes back transactions, and SQLite says nothing about it: the
// database is not opened, and no file of it is changed.
func TestLogThatIsDamaged(t *testing.T) {
	from := filled(t).path
	db, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	wal, err := os.ReadFile(from + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	const frame = frameHeader + 4096
	last := walHeader + (len(wal)-walHeader)/frame*frame - frame // where the last frame begins
	put := func(t *testing.T, db, wal []byte) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "tine.db")
		if db != nil {
			if err := os.WriteFile(path, db, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(path+"-wal", wal, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	flip := func(at int) []byte {
		bad := bytes.Clone(wal)
		bad[at] ^= 1
		return bad
	}
	for name, c := range map[string]struct{ db, wal []byte }{
		"its first bytes":        {db, flip(2)},
		"its salts":              {db, flip(17)},
		"the first frame":        {db, flip(walHeader + frameHeader + 100)},
		"the head of a frame":    {db, flip(walHeader + frame + 2)},
		"a frame in the middle":  {db, flip(walHeader + (len(wal)/frame/2)*frame + 700)},
		"the one before the end": {db, flip(last - 8)},
		"too short":              {db, wal[:20]},
		"no database":            {nil, wal},
		"an empty database":      {[]byte{}, wal},
	} {
		t.Run(name, func(t *testing.T) {
			path := put(t, c.db, c.wal)
			opened, err := Open(t.Context(), path)
			if err == nil {
				opened.Close()
			}
			if !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "tine state restore") {
				t.Errorf("got %v", err)
			}
			if now, err := os.ReadFile(path + "-wal"); err != nil || !bytes.Equal(now, c.wal) {
				t.Errorf("the log was changed, %v", err)
			}
			if now, err := os.ReadFile(path); !bytes.Equal(now, c.db) {
				t.Errorf("the database was changed, %v", err)
			}
		})
	}
	// What a killed writer leaves is no damage.
	for name, wal := range map[string][]byte{
		"whole": wal, "cut off": wal[:len(wal)-1000], "half a frame behind": append(bytes.Clone(wal), wal[last:last+2000]...),
		"the last frame torn": flip(last + 900), "zeros behind": append(bytes.Clone(wal), make([]byte, 3*frame)...), "empty": {},
	} {
		t.Run(name, func(t *testing.T) {
			if err := checkLog(put(t, db, wal)); err != nil {
				t.Error(err)
			}
		})
	}
}

// A database that is damaged is only looked at: closing it would move the log
// into it.
func TestDamagedDatabaseKeepsItsLog(t *testing.T) {
	from := filled(t)
	if err := from.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := os.ReadFile(from.path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096 * 3; i < 4096*20; i++ {
		db[i] = 0xEE
	}
	again := mustOpen(t, from.path, schema)
	defer again.Close()
	if err := storetest.PutToken(t.Context(), again, store.Token{Name: "bob"}); err != nil {
		t.Fatal(err)
	}
	wal, err := os.ReadFile(from.path + "-wal")
	if err != nil || len(wal) == 0 {
		t.Fatal("there is no log", err)
	}
	path := filepath.Join(t.TempDir(), "tine.db")
	for p, b := range map[string][]byte{path: db, path + "-wal": wal} {
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(t.Context(), path); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("got %v", err)
	}
	for p, b := range map[string][]byte{path: db, path + "-wal": wal} {
		if now, err := os.ReadFile(p); err != nil || !bytes.Equal(now, b) {
			t.Errorf("%s was changed, %v", p, err)
		}
	}
}

func TestCopyTo(t *testing.T) {
	d := filled(t)
	to := filepath.Join(t.TempDir(), "copy.db")
	for range 2 { // the second time over what a killed one left
		if err := os.WriteFile(to+PartSuffix, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := CopyTo(t.Context(), d.path, to); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Inspect(t.Context(), to); err != nil || got.Sessions != 1 {
		t.Errorf("it holds %+v, %v", got, err)
	}
}
