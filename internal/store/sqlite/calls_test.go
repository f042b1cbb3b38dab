package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

// TestListsOfCallsUseAnIndex reads SQLite's own plan: no list sorts or walks
// calls that its most telling condition does not choose.
func TestListsOfCallsUseAnIndex(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "tine.db"), schema)
	defer d.Close()
	ann := "ann"
	for _, tt := range []struct {
		filter store.CallFilter
		want   string
		sorts  bool
	}{
		{filter: store.CallFilter{}, want: "SCAN calls"},
		{filter: store.CallFilter{Before: 9}, want: "SEARCH calls USING INTEGER PRIMARY KEY (rowid<?)"},
		{filter: store.CallFilter{ID: "x", Server: "s"}, want: "calls_by_id (id=?"},
		{filter: store.CallFilter{Session: "s", Server: "s", Failed: true, Principal: &ann, Before: 9}, want: "calls_by_session (session=?"},
		{filter: store.CallFilter{Server: "s", Before: 9}, want: "calls_by_server (server=?"},
		{filter: store.CallFilter{Server: "s", Principal: &ann, Since: time.Now()}, want: "calls_by_server (server=?"},
		{filter: store.CallFilter{Principal: &ann, Servers: []string{"a"}}, want: "calls_by_principal (principal=?"},
		{filter: store.CallFilter{Failed: true}, want: "calls_failed"},
		{filter: store.CallFilter{Failed: true, Principal: &ann}, want: "calls_failed"},
		{filter: store.CallFilter{Failed: true, Server: "s"}, want: "calls_failed_by_server (server=?"},
		{filter: store.CallFilter{Servers: []string{"a", "b"}, Before: 9}, want: "calls_by_server (server=?", sorts: true},
	} {
		query, args := callsQuery(tt.filter)
		rows, err := d.reader.Query("EXPLAIN QUERY PLAN "+query, args...)
		if err != nil {
			t.Fatal(err)
		}
		var plan []string
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Fatal(err)
			}
			plan = append(plan, detail)
		}
		rows.Close()
		text := strings.Join(plan, "; ")
		if !strings.Contains(text, tt.want) {
			t.Errorf("%+v: %s, want %s", tt.filter, text, tt.want)
		}
		if sorts := strings.Contains(text, "USE TEMP B-TREE"); sorts && !tt.sorts {
			t.Errorf("%+v sorts: %s", tt.filter, text)
		}
	}
}

// TestCallsAreReadBesideAWriter would never end if the reader had to wait.
func TestCallsAreReadBesideAWriter(t *testing.T) {
	ctx := context.Background()
	d := mustOpen(t, filepath.Join(t.TempDir(), "tine.db"), schema)
	defer d.Close()
	if err := d.PutCalls(ctx, []store.Call{{Seq: 1}}); err != nil {
		t.Fatal(err)
	}
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("DELETE FROM calls"); err != nil {
		t.Fatal(err)
	}
	if all, err := d.Calls(ctx, store.CallFilter{}); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
	if _, ok, err := d.LastCall(ctx); err != nil || !ok {
		t.Errorf("%v, %v", ok, err)
	}
	if _, err := d.reader.Exec("DELETE FROM calls"); err == nil {
		t.Error("the reader can write")
	}
}

// TestReleasedSchemas fills a database as each released Tine made it and opens
// it with this one.
func TestReleasedSchemas(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "tine.db")
	old := mustOpen(t, path, schema[:1])
	for _, fill := range []string{
		"INSERT INTO meta VALUES ('gateway_id', 'gw_0123456789ab')",
		"INSERT INTO overrides (server, enabled) VALUES ('on', 1), ('off', 0), ('as is', NULL)",
		"INSERT INTO handles VALUES ('k', 'process', 'fs', 'ses_1', '/dir', x'7b7d', 'hash', NULL, 5)",
		"INSERT INTO sessions VALUES ('ses_1', 'ann', 'default', 5, 6, NULL)",
		"INSERT INTO clients VALUES ('c', 'ses_1', '/mcp', 'ann', '2025-11-25', x'7b7d', 5, 6)",
	} {
		if _, err := old.db.Exec(fill); err != nil {
			t.Fatal(err)
		}
	}
	old.Close()

	d := mustOpen(t, path, schema)
	defer d.Close()
	if id, err := d.GatewayID(ctx); id != "gw_0123456789ab" || err != nil {
		t.Errorf("gateway id %q, %v", id, err)
	}
	overrides, err := d.Overrides(ctx)
	if err != nil || len(overrides) != 3 || !*overrides["on"].Enabled || *overrides["off"].Enabled || overrides["as is"].Enabled != nil || overrides["on"].Set != nil {
		t.Errorf("overrides %v, %v", overrides, err)
	}
	if all, err := d.Handles(ctx); err != nil || len(all) != 1 || all[0].SpecHash != "hash" {
		t.Errorf("handles %v, %v", all, err)
	}
	if all, err := d.Sessions(ctx); err != nil || len(all) != 1 || all[0].Owner != "ann" {
		t.Errorf("sessions %v, %v", all, err)
	}
	if all, err := d.Clients(ctx); err != nil || len(all) != 1 || all[0].View != "/mcp" {
		t.Errorf("clients %v, %v", all, err)
	}
	// And what is new works on it.
	if err := d.PutOverride(ctx, "on", store.Override{Set: json.RawMessage(`{}`)}); err != nil {
		t.Error(err)
	}
	if err := d.PutCredential(ctx, store.Credential{Server: "s"}); err != nil {
		t.Error(err)
	}
	if err := d.PutToken(ctx, store.Token{Name: "t"}); err != nil {
		t.Error(err)
	}
	if err := d.PutCalls(ctx, []store.Call{{Seq: 1}}); err != nil {
		t.Error(err)
	}
	backup := mustOpen(t, path+".v1.backup", schema[:1])
	defer backup.Close()
	if all, err := backup.Handles(ctx); err != nil || len(all) != 1 {
		t.Errorf("the backup holds %v, %v", all, err)
	}
}

func BenchmarkPutCalls(b *testing.B) {
	ctx := context.Background()
	d := mustOpen(b, filepath.Join(b.TempDir(), "tine.db"), schema)
	defer d.Close()
	const batch = 512
	var seq int64
	for b.Loop() {
		calls := make([]store.Call, batch)
		for i := range calls {
			seq++
			calls[i] = store.Call{
				Seq: seq, ID: fmt.Sprintf("call_%012x", uint64(seq)*0x9E3779B97F4A7C15&(1<<48-1)), At: time.Now(), Principal: "ann", Session: "ses_0123456789ab",
				Server: "everything", Method: "tools/call", Name: "echo", Duration: 1, Outcome: "ok", Segment: 1, Offset: seq * 500, Length: 500,
			}
		}
		if err := d.PutCalls(ctx, calls); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(seq), "ns/call")
}

func BenchmarkCalls(b *testing.B) {
	ctx := context.Background()
	d := mustOpen(b, filepath.Join(b.TempDir(), "tine.db"), schema)
	defer d.Close()
	const many = 200_000
	start := time.Now()
	calls := make([]store.Call, 1000)
	for seq := int64(0); seq < many; {
		for i := range calls {
			seq++
			calls[i] = store.Call{Seq: seq, ID: fmt.Sprint("call_", seq), At: start.Add(time.Duration(seq)), Server: fmt.Sprint("s", seq%20), Outcome: "ok"}
		}
		if err := d.PutCalls(ctx, calls); err != nil {
			b.Fatal(err)
		}
	}
	for name, f := range map[string]store.CallFilter{
		"newest":       {},
		"server":       {Server: "s3"},
		"servers":      {Servers: []string{"s1", "s2", "s3"}},
		"failed":       {Failed: true},
		"since, none":  {Since: start.Add(time.Hour)},
		"other server": {Server: "none"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := d.Calls(ctx, f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestLargeFilesAreChecked is for files that are not read whole at a start: the
// index of the journal may be damaged in them, and nothing else.
func TestLargeFilesAreChecked(t *testing.T) {
	ctx := context.Background()
	for table, want := range map[string]string{"handles": "is damaged", "calls": ""} {
		t.Run(table, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tine.db")
			d := mustOpen(t, path, schema)
			for i := range int64(200) {
				if err := d.PutHandle(ctx, store.Handle{Key: fmt.Sprint(i), Dir: strings.Repeat("d", 500)}); err != nil {
					t.Fatal(err)
				}
				if err := d.PutCalls(ctx, []store.Call{{Seq: i + 1, Name: strings.Repeat("n", 500)}}); err != nil {
					t.Fatal(err)
				}
			}
			var root, page int64
			if err := d.db.QueryRow("SELECT rootpage, page_size FROM sqlite_schema, pragma_page_size WHERE name = ?", table).Scan(&root, &page); err != nil {
				t.Fatal(err)
			}
			d.Close()
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt(bytes.Repeat([]byte{0xEE}, int(page)), (root-1)*page); err != nil {
				t.Fatal(err)
			}
			if err := f.Truncate(checkLimit + 4096); err != nil {
				t.Fatal(err)
			}
			d, err = Open(ctx, path)
			if err == nil {
				d.Close()
			}
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}
