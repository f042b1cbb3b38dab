package sqlite

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

func callsFrom(seq int64, n int) []store.Call {
	calls := make([]store.Call, n)
	for i := range calls {
		s := seq + int64(i)
		calls[i] = store.Call{
			Seq: s, At: time.Unix(1_800_000_000, s).UTC(), Principal: "ann", Session: fmt.Sprint("ses_", s/100), Server: fmt.Sprint("s", s%3), Method: "tools/call", Name: "echo",
			Duration: time.Duration(s * 1000), Outcome: "ok", Segment: 1, Offset: s * 500, Length: 500,
		}
	}
	return calls
}

func TestBlocksComeBack(t *testing.T) {
	far := []store.Call{
		{Seq: 1, At: time.Unix(0, math.MaxInt64).UTC(), Offset: math.MaxInt64, Length: math.MaxInt64, Duration: math.MinInt64},
		{Seq: 2, Offset: math.MinInt64, Length: math.MinInt64, Duration: math.MaxInt64},
		{Seq: math.MaxInt64, At: time.Unix(0, 0).UTC(), Server: strings.Repeat("s", 1<<20)},
	}
	runs := callsFrom(9, 40)
	runs[3].Run, runs[4].Run, runs[20].Run = "run_1", "run_1", "run_2"
	var w blockWriter
	for _, calls := range [][]store.Call{far, callsFrom(7, 1), runs, callsFrom(1<<50, blockCalls), far[1:2], runs[3:4]} {
		got, err := readBlock(nil, w.block(calls).data, calls[0].Segment)
		if err != nil || !reflect.DeepEqual(got, calls) {
			t.Errorf("%v: got %.500v\nwant %.500v", err, got, calls)
		}
	}
	if size := len(w.block(callsFrom(1, blockCalls)).data); size > 20*blockCalls {
		t.Errorf("a block of calls that are alike takes %d bytes", size)
	}
}

// TestBlocksWithoutRuns checks that they are what they were before there were runs, so
// that a block of today and one of then are read alike.
func TestBlocksWithoutRuns(t *testing.T) {
	var w blockWriter
	b := w.block([]store.Call{{Seq: 1, At: time.Unix(0, 2), Principal: "p", Session: "s", Server: "v", Method: "m", Name: "n", Outcome: "ok", Duration: 3, Segment: 1, Offset: 4, Length: 5}})
	want := "\x06" + "\x01p" + "\x01s" + "\x01v" + "\x01m" + "\x01n" + "\x02ok" + "\x01" + "\x01\x04" + "\x00\x01\x02\x03\x04\x05" + "\x06\x08\x0a"
	if got := string(b.data[4:]); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(b.runs) != 0 {
		t.Errorf("runs %x of a block without them", b.runs)
	}
}

func TestHarmedBlocks(t *testing.T) {
	var w blockWriter
	data := w.block(callsFrom(7, 20)).data
	for i := range data {
		for bit := range 8 {
			data[i] ^= 1 << bit
			if _, err := readBlock(nil, data, 1); err == nil {
				t.Fatalf("bit %d of byte %d is not seen", bit, i)
			}
			data[i] ^= 1 << bit
		}
		if _, err := readBlock(nil, data[:i], 1); err == nil {
			t.Fatalf("cut at %d is not seen", i)
		}
	}
}

// FuzzBlock reads any bytes as a block with a good checksum: it ends without
// taking more memory than the bytes are worth, and what was read is what would
// be written.
func FuzzBlock(f *testing.F) {
	var w blockWriter
	f.Add(w.block(callsFrom(7, 3)).data[4:])
	f.Add(w.block([]store.Call{{Seq: math.MaxInt64, Offset: math.MinInt64, Length: -1}}).data[4:])
	f.Add([]byte{})
	f.Add([]byte{0, 1})
	f.Add([]byte{0, 2, 1, 0})
	f.Add(w.block([]store.Call{{Seq: 3, Run: "run_1"}, {Seq: 4}}).data[4:])
	f.Add(binary.AppendUvarint(nil, math.MaxUint64))
	f.Add(append([]byte{1, 0}, binary.AppendUvarint(nil, math.MaxInt64)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		data := append(binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(b)), b...)
		calls, err := readBlock(nil, data, 5)
		if err != nil {
			return
		}
		if len(calls) == 0 || len(calls) > len(b)/minCall {
			t.Fatalf("%d calls of %d bytes", len(calls), len(b))
		}
		for i := 1; i < len(calls); i++ {
			if calls[i].Seq <= calls[i-1].Seq {
				t.Fatalf("seq %d after %d", calls[i].Seq, calls[i-1].Seq)
			}
		}
		var w blockWriter
		again, err := readBlock(nil, w.block(calls).data, 5)
		if err != nil || !reflect.DeepEqual(again, calls) {
			t.Fatalf("%v: %v, then %v", err, calls, again)
		}
	})
}

func (d *DB) rows(t testing.TB) (n int) {
	t.Helper()
	if err := d.db.QueryRow("SELECT count(*) FROM calls").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func put(t testing.TB, d *DB, calls []store.Call) {
	t.Helper()
	if err := d.PutCalls(context.Background(), calls); err != nil {
		t.Fatal(err)
	}
}

// TestFewRows is what blocks are for, also where calls come one by one.
func TestFewRows(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "tine.db"), schema)
	defer d.Close()
	for seq := range int64(10 * mergeBelow) {
		put(t, d, callsFrom(seq+1, 1))
	}
	if n := d.rows(t); n != 10 {
		t.Errorf("%d rows of calls that came one by one", n)
	}
	put(t, d, callsFrom(1000, 10*blockCalls))
	if n := d.rows(t); n != 20 {
		t.Errorf("%d rows with those that came at once", n)
	}
	put(t, d, callsFrom(1, 10000)) // most are there
	if err := d.PutCalls(context.Background(), callsFrom(0, 2)); err == nil {
		t.Error("a call without a number was put")
	}
	if all, err := d.Calls(context.Background(), store.CallFilter{Limit: 20000}); err != nil || len(all) != 10000 {
		t.Errorf("%d calls, %v", len(all), err)
	}
}

func (d *DB) harm(t testing.TB, where string) {
	t.Helper()
	r, err := d.db.Exec("UPDATE calls SET data = CAST(substr(data, 1, 9) || x'ff' || substr(data, 11) AS BLOB) WHERE " + where)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := r.RowsAffected(); n == 0 {
		t.Fatal("nothing was harmed")
	}
}

// TestBlocksAreSkipped harms all blocks but one, so that a look into another
// fails.
func TestBlocksAreSkipped(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "tine.db"), schema)
	defer d.Close()
	calls := callsFrom(1, 5*blockCalls)
	rare := &calls[2*blockCalls+100]
	rare.Server, rare.Principal, rare.Session, rare.Outcome, rare.At = "rare", "rare", "rare", "tool", rare.At.Add(time.Hour)
	put(t, d, calls)
	d.harm(t, "failed = 0")
	for name, f := range map[string]store.CallFilter{
		"server": {Server: "rare"}, "servers": {Servers: []string{"none", "rare"}}, "principal": {Principal: &rare.Principal}, "session": {Session: "rare"},
		"failed": {Failed: true}, "since": {Since: rare.At}, "id": {ID: store.CallID(rare.Seq)}, "limit": {Before: rare.Seq + 1, Limit: 1, Server: "rare"},
	} {
		got, err := d.Calls(context.Background(), f)
		if err != nil || len(got) != 1 || got[0].Seq != rare.Seq {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestDamagedBlocks(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "tine.db")
	d := mustOpen(t, path, schema)
	defer func() { d.Close() }()
	put(t, d, callsFrom(1, 5*blockCalls))
	d.harm(t, fmt.Sprint("first IN (", 2*blockCalls+1, ",", 3*blockCalls+1, ")"))
	all := store.CallFilter{Limit: 10 * blockCalls}
	if got, err := d.Calls(ctx, store.CallFilter{}); err != nil || len(got) != 100 {
		t.Errorf("calls after the damage: %d, %v", len(got), err)
	}
	for _, before := range []int64{0, 3*blockCalls + 1, 0} {
		all.Before = before
		if _, err := d.Calls(ctx, all); err == nil || !strings.Contains(err.Error(), "restart the gateway") || !strings.Contains(err.Error(), path) {
			t.Errorf("damaged calls before %d: %v", before, err)
		}
	}
	all.Before = 0
	if err := d.PutCalls(ctx, callsFrom(3*blockCalls+10, 1)); err == nil || !strings.Contains(err.Error(), "restart the gateway") {
		t.Errorf("a call put into a damaged block: %v", err)
	}
	put(t, d, callsFrom(5*blockCalls+1, 1))

	// What comes after the damage is put again by the journal.
	for range 2 {
		d.Close()
		d = mustOpen(t, path, schema)
		last, ok, err := d.LastCall(ctx)
		if err != nil || !ok || last.Seq != 2*blockCalls {
			t.Fatalf("the newest call is %+v, %v, %v", last, ok, err)
		}
	}
	put(t, d, callsFrom(2*blockCalls+1, 3*blockCalls+1))
	d.Close()
	d = mustOpen(t, path, schema)
	if got, err := d.Calls(ctx, all); err != nil || len(got) != 5*blockCalls+1 {
		t.Errorf("%d calls, %v", len(got), err)
	}

	// The last one, which is small, and so others are added to it.
	d.harm(t, "size = 1")
	last, ok, err := d.LastCall(ctx)
	if err != nil || !ok || last.Seq != 5*blockCalls+1 || last.Length != 0 {
		t.Errorf("the newest call is %+v, %v, %v", last, ok, err)
	}
	put(t, d, callsFrom(5*blockCalls+2, 1))
	if last, ok, err := d.LastCall(ctx); err != nil || !ok || last.Length == 0 {
		t.Errorf("the newest call is %+v, %v, %v", last, ok, err)
	}
}
