package session_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store/sqlite"
	"github.com/tine-mcp/tine/internal/store/sqlite/sqlitetest"
)

// flip changes rows of a database that is not open, as flipped bytes would.
func (w *world) flip(query string, args ...any) {
	w.t.Helper()
	db, err := sql.Open("sqlite3", filepath.Join(w.dir, "tine.db"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	res, err := db.ExecContext(w.t.Context(), query, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		w.t.Fatalf("%s changed %d rows, %v", query, n, err)
	}
}

func (w *world) faults() []string {
	w.t.Helper()
	db := sqlitetest.Open(w.t, w.dir)
	defer db.Close()
	faults, err := session.Faults(w.t.Context(), db, w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	return faults
}

// Where the database and a folder have records of one revision that differ, the
// folder's counts, which has a sum.
func TestFlippedRecords(t *testing.T) {
	w := newWorld(t, lasting)
	s := w.opened(session.OpenOptions{Labels: map[string]string{"a": "b"}})
	w.remember(s, "x")
	child := w.fork(s, 1)[0]
	snap := w.frozen(s, "base")
	own := w.session("ada")
	w.remember(own, "hers")
	owner, token := s.Owner, tokenOf(t, w, s)
	w.close(false)
	if got := w.faults(); len(got) > 0 {
		t.Fatalf("a sound database has %v", got)
	}
	for _, query := range []string{
		"UPDATE sessions SET owner = owner || 'N' WHERE id = ?1",
		"UPDATE sessions SET token = 'x' || token WHERE id = ?1",
		"UPDATE sessions SET parent = 'ses_x' WHERE id = ?1",
		"UPDATE sessions SET catalog = 'x' WHERE id = ?1",
		"UPDATE sessions SET created = created + 1 WHERE id = ?1",
		"UPDATE sessions SET closed = 1 WHERE id = ?1",
		`UPDATE sessions SET data = CAST(replace(CAST(data AS TEXT), '"a":"b"', '"a":"c"') AS BLOB) WHERE id = ?1`,
		`UPDATE sessions SET data = CAST('{' || CAST(data AS TEXT) AS BLOB) WHERE id = ?1`,
		"UPDATE snapshots SET owner = owner || 'N' WHERE id = ?2",
		"UPDATE snapshots SET name = 'bAse' WHERE id = ?2",
		"UPDATE sessions SET owner = 'aDa' WHERE owner = 'ada'",
	} {
		t.Run(query, func(t *testing.T) {
			w.flip(query+" AND ?1 <> ?2", s.ID, snap.ID) // all arguments have to be used
			if got := w.faults(); len(got) != 1 {
				t.Errorf("the faults are %v", got)
			}
			w.open(lasting)
			back := w.Get(s.ID)
			if back == nil || back.Owner != owner || !back.Created.Equal(s.Created) || back.Parent != "" {
				t.Fatalf("the session is %+v", back)
			}
			if got, _, _ := w.ByToken(token); got != back {
				t.Error("its token is another")
			}
			if got := w.Describe(back, false); got.Labels["a"] != "b" {
				t.Errorf("its labels are %v", got.Labels)
			}
			w.remembers("the session", back, "x")
			w.remembers("its fork", w.Get(child.ID), "x")
			w.remembers("a principal's own", w.session("ada"), "hers")
			if all := w.Snapshots(); len(all) != 1 || all[0].Name != "base" || all[0].Owner != snap.Owner {
				t.Errorf("the snapshots are %+v", all)
			}
			w.close(false)
			if got := w.faults(); len(got) > 0 {
				t.Errorf("then there are %v", got)
			}
		})
	}
}

func tokenOf(t *testing.T, w *world, s *session.Session) (hash string) {
	t.Helper()
	rec, ok, err := w.db.Session(t.Context(), s.ID)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return rec.Token
}

// The servers of a session are those that its key is the hash of: from the database,
// or from the file besides, or the session is not served.
func TestFlippedCatalogs(t *testing.T) {
	w := newWorld(t, lasting)
	s := w.opened(session.OpenOptions{})
	w.remember(s, "x")
	w.close(false)
	files, err := filepath.Glob(filepath.Join(w.dir, "catalogs", "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("there are %v, %v", files, err)
	}
	file := files[0]
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bad := []byte(strings.Replace(string(good), `"mem"`, `"meN"`, 1))
	const flip = "UPDATE catalogs SET servers = ?"
	for name, c := range map[string]struct {
		row, file []byte
		served    bool
	}{
		"the row":  {bad, good, true},
		"the file": {good, bad, true},
		"both":     {bad, bad, false},
	} {
		t.Run(name, func(t *testing.T) {
			w.flip(flip, c.row)
			if err := os.WriteFile(file, c.file, 0o600); err != nil {
				t.Fatal(err)
			}
			w.open(lasting)
			if back := w.Get(s.ID); (back != nil) != c.served {
				t.Errorf("it is served: %v", back != nil)
			} else if c.served {
				w.remembers("the session", back, "x")
			}
			w.close(false)
			if !c.served {
				w.flip(flip, good)
				w.open(lasting)
				w.remembers("put back", w.Get(s.ID), "x")
				w.close(false)
			}
			if now, err := os.ReadFile(file); err != nil || string(now) != string(good) {
				t.Errorf("the file is %s, %v", now, err)
			}
			if got := w.faults(); len(got) > 0 {
				t.Errorf("then there are %v", got)
			}
		})
	}
}

// A backup of a database with faults takes no sound one's place.
func TestFaultyBackup(t *testing.T) {
	w := newWorld(t, lasting)
	s := w.opened(session.OpenOptions{})
	w.remember(s, "x")
	w.close(false)
	db := sqlitetest.Open(t, w.dir)
	defer db.Close()
	dir := t.TempDir()
	faults := func(ctx context.Context, db *sqlite.DB) ([]string, error) { return session.Faults(ctx, db, w.dir) }
	at := s.Created
	backup := func() (string, error) {
		at = at.Add(1e9)
		return db.Backup(t.Context(), dir, at, 2, faults)
	}
	var sound []string
	for range 3 {
		path, err := backup()
		if err != nil {
			t.Fatal(err)
		}
		sound = append(sound, path)
	}
	rec, _, err := db.Session(t.Context(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	rec.Owner = "aNn"
	if err := db.PutSessions(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := backup(); err == nil || !strings.Contains(err.Error(), s.ID) {
			t.Errorf("got %v", err)
		}
	}
	all, err := sqlite.Backups(dir)
	if err != nil || len(all) != 3 || !all[0].Faulty || !slices.Equal([]string{all[2].Path, all[1].Path}, sound[1:]) {
		t.Errorf("there are %+v, %v", all, err)
	}
	for _, b := range all {
		if _, err := sqlite.Inspect(t.Context(), b.Path); err != nil {
			t.Error(err)
		}
	}
}
