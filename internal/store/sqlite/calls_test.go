package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

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

func BenchmarkPutCalls(b *testing.B) {
	ctx := context.Background()
	for _, batch := range []int{1, 32, 512} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			d := mustOpen(b, filepath.Join(b.TempDir(), "tine.db"), schema)
			defer d.Close()
			calls := make([]store.Call, batch)
			for i := range calls {
				calls[i] = store.Call{
					At: time.Now(), Principal: "ann", Session: fmt.Sprint("ses_0123456789", i%20), Server: fmt.Sprint("server", i%7), Method: "tools/call", Name: fmt.Sprint("tool", i%50),
					Duration: time.Duration(i * 1000), Outcome: "ok", Segment: 1, Length: 500,
				}
			}
			var seq int64
			for b.Loop() {
				for i := range calls {
					seq++
					calls[i].Seq, calls[i].Offset = seq, seq*500
				}
				if err := d.PutCalls(ctx, calls); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(seq), "ns/call")
		})
	}
}

func BenchmarkCalls(b *testing.B) {
	ctx := context.Background()
	d := mustOpen(b, filepath.Join(b.TempDir(), "tine.db"), schema)
	defer d.Close()
	const many = 200_000
	start := time.Now()
	calls := make([]store.Call, 512)
	for seq := int64(0); seq < many; {
		for i := range calls {
			seq++
			calls[i] = store.Call{
				Seq: seq, ID: fmt.Sprintf("call_%012x", seq), At: start.Add(time.Duration(seq)), Principal: fmt.Sprint("p", seq%50), Session: fmt.Sprintf("ses_%012x", seq%300),
				Server: fmt.Sprint("s", seq%20), Method: "tools/call", Name: "echo", Outcome: "ok", Segment: 1, Offset: seq * 500, Length: 500,
			}
			if seq%50_000 == 1 {
				calls[i].Session, calls[i].Server, calls[i].Principal, calls[i].Outcome = "rare", "rare", "rare", "tool"
			}
		}
		if err := d.PutCalls(ctx, calls); err != nil {
			b.Fatal(err)
		}
	}
	p3, rare := "p3", "rare"
	for _, tt := range []struct {
		name string
		f    store.CallFilter
	}{
		{"newest", store.CallFilter{}},
		{"middle", store.CallFilter{Before: many / 2}},
		{"id", store.CallFilter{ID: "call_000000012345"}},
		{"server", store.CallFilter{Server: "s3"}},
		{"servers", store.CallFilter{Servers: []string{"s1", "s2", "s3"}}},
		{"session", store.CallFilter{Session: "ses_000000000012"}},
		{"principal", store.CallFilter{Principal: &p3}},
		{"rare server", store.CallFilter{Server: rare}},
		{"rare servers", store.CallFilter{Servers: []string{rare, "none"}}},
		{"rare session", store.CallFilter{Session: rare}},
		{"rare principal", store.CallFilter{Principal: &rare}},
		{"rare failed", store.CallFilter{Failed: true}},
		{"common two, never both", store.CallFilter{Server: "s3", Principal: &p3, Session: "ses_000000000012"}},
		{"none since", store.CallFilter{Since: start.Add(time.Hour)}},
		{"none of server", store.CallFilter{Server: "none"}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := d.Calls(ctx, tt.f); err != nil {
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
