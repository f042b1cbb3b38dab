package journal

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/sqlite"
	"github.com/tine-mcp/tine/internal/store/sqlite/sqlitetest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// TestTornAtEveryByte cuts the last line at each of its bytes.
func TestTornAtEveryByte(t *testing.T) {
	r := newRig(t, Options{})
	ids := r.add(3)
	r.down()
	known := r.ix.inner.(*memory)
	path := r.files()[0]
	whole := r.read(path)
	start := bytes.LastIndexByte(whole[:len(whole)-1], '\n') + 1
	for cut := start; cut < len(whole); cut++ {
		r.write(path, whole[:cut])
		// One index that knows the lost call, as after a power cut, and one that
		// is as far as the files.
		r.ix = &index{inner: known.clone()}
		if cut%2 == 0 {
			r.reindex()
		}
		r.up()
		sameIDs(t, r.listed(), ids[:2])
		if cut > start && r.log.Count("not written whole") != 1 {
			t.Fatalf("cut at %d: no warning", cut)
		}
		e := sample()
		if err := r.Append(&e); err != nil {
			t.Fatal(err)
		}
		r.down()
		r.up()
		sameIDs(t, r.listed(), append(ids[:2:2], e.ID))
		if r.log.Count("WARN") != 0 {
			t.Fatalf("cut at %d: a warning after the mend", cut)
		}
		r.down()
	}
}

// TestTornHeader is a death right after a new segment was begun.
func TestTornHeader(t *testing.T) {
	r := newRig(t, Options{SegmentSize: minSegmentSize})
	ids := r.add(1)
	r.down()
	header := r.read(r.files()[0])
	header = header[:bytes.IndexByte(header, '\n')+1]
	for cut := range header {
		r.write(filepath.Join(r.dir, "00000002.jsonl"), header[:cut])
		r.up()
		ids = append(ids, r.add(1)...)
		sameIDs(t, r.listed(), ids)
		r.again()
		sameIDs(t, r.listed(), ids)
		r.down()
		ids = ids[:1]
		os.Remove(filepath.Join(r.dir, "00000002.jsonl"))
		r.reindex()
	}
}

// TestTornHeaderAfterMany has a new segment begun and nothing indexed, so that
// only the calls of the one before say which Seq is next.
func TestTornHeaderAfterMany(t *testing.T) {
	for _, header := range []string{"", `{"journal":1,"seg`} {
		r := newRig(t, Options{SegmentSize: minSegmentSize})
		ids := r.add(100)
		r.down()
		r.write(filepath.Join(r.dir, fmt.Sprintf("%08d.jsonl", len(r.files())+1)), []byte(header))
		r.reindex()
		r.up()
		ids = append(ids, r.add(10)...)
		if last := r.Last(); last != int64(len(ids)) {
			t.Errorf("seq %d of %d calls", last, len(ids))
		}
		sameIDs(t, r.listed(), ids)
		r.wholeIndex(ids)
	}
}

func TestAKillLosesNothing(t *testing.T) {
	r := newRig(t, Options{})
	r.down()
	place := filepath.Dir(r.dir)
	want := make(map[string]bool)
	for range 3 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writeVar+"="+place)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 1000 && lines.Scan(); n++ {
			want[lines.Text()] = true
		}
		cmd.Process.Kill()
		for lines.Scan() { // said before it died
			want[lines.Text()] = true
		}
		cmd.Wait()

		db := sqlitetest.Open(t, place)
		r.ix = &index{inner: db}
		r.up()
		testkit.Eventually(t, "the index has every call", func() bool { return r.Stats().Lag == 0 })
		have := make(map[string]bool)
		last := int64(1) << 62
		for _, e := range r.list(store.CallFilter{Limit: 1 << 20}) {
			have[fmt.Sprint(e.ID, " ", e.Seq)] = true
			if e.Seq >= last {
				t.Errorf("seq %d after %d", e.Seq, last)
			}
			last = e.Seq
		}
		for id := range want {
			if !have[id] {
				t.Errorf("call %s was written and is gone", id)
				break
			}
		}
		r.down()
		db.Close()
	}
	if len(want) < 3000 {
		t.Errorf("only %d calls were written", len(want))
	}
}

func writeForever(place string) {
	err := func() error {
		db, err := sqlite.Open(context.Background(), filepath.Join(place, "tine.db"))
		if err != nil {
			return err
		}
		j, err := Open(context.Background(), Options{Dir: filepath.Join(place, "journal"), Index: db, SegmentSize: 256 << 10, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		for {
			e := sample()
			if err := j.Append(&e); err != nil {
				return err
			}
			fmt.Println(e.ID, e.Seq)
		}
	}()
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestIndexIsMended gives the journal an index that does not fit.
func TestIndexIsMended(t *testing.T) {
	for name, test := range map[string]struct {
		harm func(r *rig, known []store.Call) (lost int)
		warn bool
	}{
		"empty":      {func(r *rig, _ []store.Call) int { r.reindex(); return 0 }, false},
		"far behind": {func(r *rig, known []store.Call) int { r.reindex(known[:5]...); return 0 }, false},
		"a little":   {func(r *rig, known []store.Call) int { r.reindex(known[:len(known)-1]...); return 0 }, false},
		"of others": {func(r *rig, known []store.Call) int {
			known[9].At = known[9].At.Add(1)
			r.reindex(known[:10]...)
			return 0
		}, true},
		"other places": {func(r *rig, known []store.Call) int { known[9].Offset--; r.reindex(known[:10]...); return 0 }, true},
		"no such place": {func(r *rig, known []store.Call) int {
			r.reindex(store.Call{Seq: 5000, Segment: 1 << 40, Length: 1})
			return 0
		}, true},
		"mad": {func(r *rig, known []store.Call) int {
			r.reindex(store.Call{Seq: 5000, Segment: 1, Offset: -5, Length: 1 << 62})
			return 0
		}, true},
		"files are gone": {func(r *rig, known []store.Call) int {
			for _, f := range r.files() {
				os.Remove(f)
			}
			return len(known)
		}, true},
		"the first files are gone": {func(r *rig, known []store.Call) int {
			os.Remove(r.files()[0])
			n := 0
			for n < len(known) && known[n].Segment == known[0].Segment {
				n++
			}
			return n
		}, false},
		"the last file is gone": {func(r *rig, known []store.Call) int {
			files := r.files()
			os.Remove(files[len(files)-1])
			return -1
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{SegmentSize: minSegmentSize})
			ids := r.add(300)
			r.wholeIndex(ids)
			known := r.known(store.CallFilter{Limit: 1000})
			slices.Reverse(known)
			last := known[len(known)-1]
			r.down()
			lost := test.harm(r, append([]store.Call(nil), known...))
			if lost < 0 {
				n := 0
				for known[n].Segment != last.Segment {
					n++
				}
				ids, lost = ids[:n], 0
			}
			r.up()
			ids = append(ids[lost:len(ids):len(ids)], r.add(20)...)
			sameIDs(t, r.listed(), ids)
			r.wholeIndex(ids)
			if newest := r.list(store.CallFilter{Limit: 1})[0]; newest.Seq <= last.Seq {
				t.Errorf("seq %d after %d", newest.Seq, last.Seq)
			}
			if warned := r.log.Count("does not match") > 0; warned != test.warn {
				t.Errorf("warned: %v", warned)
			}
		})
	}
}

// TestCrashBeforeTheIndex loses all that was only in memory.
func TestCrashBeforeTheIndex(t *testing.T) {
	r := newRig(t, Options{SegmentSize: minSegmentSize})
	var ids []string
	for range 3 {
		ids = append(ids, r.add(50)...)
		r.wholeIndex(ids)
		r.ix.fail(errors.New("dead"))
		ids = append(ids, r.add(50)...)
		r.crash()
		r.up()
		sameIDs(t, r.listed(), ids)
		r.wholeIndex(ids)
	}
}

// TestDamage changes the middle of the files; what is whole stays.
func TestDamage(t *testing.T) {
	for name, harm := range map[string]func(b []byte, at, end int) []byte{
		"zeros": func(b []byte, at, end int) []byte { clear(b[at+5 : end-5]); return b },
		"text": func(b []byte, at, end int) []byte {
			return append(append(b[:at:at], "hello\n\n\n{}\nnull\n{\"id\":\"call_x\",\"seq\":1}\n"...), b[end:]...)
		},
		"a cut line": func(b []byte, at, end int) []byte {
			return append(b[:at+50:at+50], append([]byte("\n"), b[end:]...)...)
		},
		"a wrong size": func(b []byte, at, end int) []byte {
			return bytes.Replace(b, b[at:end], bytes.Replace(b[at:end], []byte("sizes\":[46"), []byte("sizes\":[47"), 1), 1)
		},
		"a huge size": func(b []byte, at, end int) []byte {
			return bytes.Replace(b, b[at:end], bytes.Replace(b[at:end], []byte("sizes\":[46"), []byte("sizes\":[99999999999999999"), 1), 1)
		},
		"no newline": func(b []byte, at, end int) []byte { b[end-1] = ' '; return b },
		"bad text":   func(b []byte, at, end int) []byte { b[at+3] = '"'; return b },
		"binary":     func(b []byte, at, end int) []byte { copy(b[at:], "\xff\xfe\x00\x01"); return b },
		"a long line": func(b []byte, at, end int) []byte {
			return append(append(b[:at:at], append(bytes.Repeat([]byte("x"), maxHead+chunk), '\n')...), b[end:]...)
		},
		"the header":    func(b []byte, at, end int) []byte { b[1] = 'x'; return append(b[:at:at], b[end:]...) },
		"another's end": func(b []byte, at, end int) []byte { return append(b[:end-10:end-10], b[end:]...) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{SegmentSize: 16 << 10})
			ids := r.add(100)
			r.wholeIndex(ids)
			calls := r.known(store.CallFilter{ID: ids[3]})
			r.down()
			path := r.files()[0]
			at, end := int(calls[0].Offset), int(calls[0].Offset+calls[0].Length)
			r.write(path, harm(r.read(path), at, end))
			r.reindex()
			r.up()
			want := append(ids[:3:3], ids[4:]...)
			if name == "no newline" || name == "another's end" { // the next line is part of it
				want = append(ids[:3:3], ids[5:]...)
			}
			sameIDs(t, r.listed(), want)
			r.wholeIndex(want)
			if r.log.Count("damaged") == 0 {
				t.Error("no warning")
			}
			sameIDs(t, r.listed(), append(want[:len(want):len(want)], r.add(10)...)[:len(want)])
		})
	}
}

// TestDamageUnderTheIndex is damage that the index does not know of.
func TestDamageUnderTheIndex(t *testing.T) {
	r := newRig(t, Options{SegmentSize: minSegmentSize})
	ids := r.add(100)
	r.wholeIndex(ids)
	files := r.files()
	calls := r.known(store.CallFilter{Limit: 1000})
	os.Remove(files[2])
	b := r.read(files[1])
	clear(b)
	r.write(files[1], b)
	r.write(files[0], r.read(files[0])[:200])
	var want []string
	for i := range calls {
		if c := calls[len(calls)-1-i]; c.Segment > 3 {
			want = append(want, c.ID)
		} else if _, ok, err := r.Get(context.Background(), c.ID); ok || err != nil {
			t.Errorf("damaged call: %v, %v", ok, err)
		}
	}
	sameIDs(t, r.listed(), want)
	if n := len(r.list(store.CallFilter{Limit: 1, Before: calls[len(calls)-1].Seq + 5})); n != 0 {
		t.Errorf("%d calls where all are damaged", n)
	}
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	r := newRig(t, Options{SegmentSize: minSegmentSize})
	for _, name := range []string{"notes.txt", "1.jsonl", "-0000001.jsonl", "0000000x.jsonl", "00000000.jsonl", "99999999999999999999.jsonl"} {
		r.write(filepath.Join(r.dir, name), []byte("mine"))
	}
	if err := os.Mkdir(filepath.Join(r.dir, "00000002.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	ids := r.add(50)
	r.again()
	sameIDs(t, r.listed(), ids)
	r.SetLimits(1, 0)
	testkit.Eventually(t, "one segment is left", func() bool { return r.Stats().Segments == 1 })
	if names, _ := os.ReadDir(r.dir); len(names) != 9 {
		t.Errorf("%v", names)
	}
}

// TestIndexOnDiskIsMended changes bytes of the index that SQLite does not look
// at. A restart has all calls again.
func TestIndexOnDiskIsMended(t *testing.T) {
	ctx := context.Background()
	for name, test := range map[string]struct {
		which string
		seen  bool // by a list
		warn  bool // at the next start
	}{
		"in the middle": {"first > 1 ORDER BY first LIMIT 1", true, false},
		"the first":     {"true ORDER BY first LIMIT 1", true, false},
		"the last":      {"true ORDER BY first DESC LIMIT 1", false, true},
		"all, unseen":   {"true", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{SegmentSize: 16 << 10})
			r.down()
			path := filepath.Join(filepath.Dir(r.dir), "tine.db")
			var db *sqlite.DB
			start := func() {
				t.Helper()
				var err error
				if db, err = sqlite.Open(ctx, path); err != nil {
					t.Fatal(err)
				}
				r.ix = &index{inner: db}
				r.up()
			}
			stop := func() {
				r.down()
				db.Close()
			}
			start()
			ids := r.add(300)
			r.wholeIndex(ids)
			stop()
			raw, err := sql.Open("sqlite3", path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := raw.Exec("UPDATE calls SET data = CAST(substr(data, 1, 20) || x'00ff' || substr(data, 23) AS BLOB) WHERE first IN (SELECT first FROM calls WHERE " + test.which + ")"); err != nil {
				t.Fatal(err)
			}
			raw.Close()
			start()
			if test.seen {
				if _, err := r.List(ctx, store.CallFilter{Limit: 1000}); err == nil {
					t.Error("the damage is not seen")
				}
				ids = append(ids, r.add(5)...)
				stop()
				start()
			}
			sameIDs(t, r.listed(), ids)
			r.wholeIndex(ids)
			if warned := r.log.Count("does not match") > 0; warned != test.warn {
				t.Errorf("warned: %v", warned)
			}
			ids = append(ids, r.add(5)...)
			sameIDs(t, r.listed(), ids)
			stop()
		})
	}
}
