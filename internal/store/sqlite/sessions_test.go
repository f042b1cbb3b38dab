package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

// BenchmarkOpen is what opening a session, or forking one into many, writes.
func BenchmarkOpen(b *testing.B) {
	ctx := context.Background()
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			d := mustOpen(b, filepath.Join(b.TempDir(), "tine.db"), schema)
			defer d.Close()
			now := time.Now()
			sessions, events := make([]store.Session, batch), make([]store.Event, batch)
			n := 0
			for b.Loop() {
				for i := range sessions {
					n++
					id := fmt.Sprintf("ses_%012x", n*7919%1000003)
					sessions[i] = store.Session{ID: id, Owner: "ann", Kind: "opened", Created: now.Add(time.Duration(n)), Parent: "ses_000000000001", Token: "0123456789abcdef0123456789abcdef", Catalog: "c", Data: json.RawMessage(`{"labels":{"task":"7"}}`)}
					events[i] = store.Event{Session: id, At: now, Kind: "opened"}
				}
				if err := d.PutSessions(ctx, sessions...); err != nil {
					b.Fatal(err)
				}
				if err := d.PutEvents(ctx, events...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/session")
		})
	}
}

// TestListsUseAnIndex keeps lists of sessions from reading all there are.
func TestListsUseAnIndex(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "tine.db"), schema)
	defer d.Close()
	for query, want := range map[string]string{
		"SELECT * FROM sessions WHERE TRUE AND closed = 0 ORDER BY created DESC, id LIMIT 9":                                                "sessions_open",
		"SELECT * FROM sessions WHERE TRUE ORDER BY created DESC, id LIMIT 9":                                                               "sessions_in_order",
		"SELECT * FROM sessions WHERE TRUE AND closed = 0 AND created <= 9 AND (created < 9 OR id > '9') ORDER BY created DESC, id LIMIT 9": "sessions_open",
		"SELECT * FROM sessions WHERE TRUE AND parent = 'ses_1' AND parent <> '' ORDER BY created DESC, id LIMIT 9":                         "sessions_of_parent",
		"SELECT * FROM events WHERE session = 'ses_1' ORDER BY n":                                                                           "events_of_session",

		"SELECT * FROM runs WHERE TRUE ORDER BY created DESC, id LIMIT 9":                                    "runs_in_order",
		"SELECT * FROM runs WHERE owner = 'a' ORDER BY created DESC, id LIMIT 9":                             "runs_of_owner",
		"SELECT * FROM runs WHERE session = 's' ORDER BY created DESC, id LIMIT 9":                           "runs_of_session",
		"SELECT * FROM runs WHERE parent = 'p' AND parent <> '' ORDER BY created DESC, id LIMIT 9":           "runs_of_parent",
		"SELECT * FROM runs WHERE state IN ('pending', 'claimed') ORDER BY created DESC, id LIMIT 9":         "runs_by_state",
		"SELECT * FROM agent_sessions WHERE parent = 'p' AND parent <> '' ORDER BY created DESC, id LIMIT 9": "agent_sessions_of_parent",
		"SELECT * FROM agent_sessions WHERE owner = 'a' ORDER BY created DESC, id LIMIT 9":                   "agent_sessions_of_owner",
		"SELECT id FROM agent_sessions WHERE state IN ('finished', 'failed', 'stopped') AND changed < 9":     "agent_sessions_by_end",
		"SELECT * FROM callbacks WHERE parent = 'p' ORDER BY n":                                              "callbacks_of_parent",
		"SELECT * FROM callbacks WHERE carrier = '' ORDER BY n":                                              "callbacks_waiting",
	} {
		plan := ""
		err := d.each(context.Background(), "explain", "EXPLAIN QUERY PLAN "+query, func(rows *sql.Rows) error {
			var id, parent, unused int
			var line string
			err := rows.Scan(&id, &parent, &unused, &line)
			plan += line + "; "
			return err
		})
		if err != nil || !strings.Contains(plan, want) {
			t.Errorf("%s\nis done with %s (%v), want %s", query, plan, err, want)
		}
	}
}
