package journal

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/sqlite"
)

func BenchmarkAppend(b *testing.B) {
	for _, indexed := range []bool{false, true} {
		for _, size := range []int{100, 2 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("index=%v/%d", indexed, size), func(b *testing.B) {
				var ix store.Calls = discard{}
				if indexed {
					db, err := sqlite.Open(context.Background(), filepath.Join(b.TempDir(), "tine.db"))
					if err != nil {
						b.Fatal(err)
					}
					defer db.Close()
					ix = db
				}
				j, err := Open(context.Background(), Options{Dir: b.TempDir(), Index: ix, MaxSize: 256 << 20})
				if err != nil {
					b.Fatal(err)
				}
				defer func() {
					b.StopTimer()
					j.Close()
				}()
				e := sample()
				e.Result = []byte(`"` + strings.Repeat("r", size) + `"`)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						e := e
						if err := j.Append(&e); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}

func BenchmarkList(b *testing.B) {
	db, err := sqlite.Open(context.Background(), filepath.Join(b.TempDir(), "tine.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	j, err := Open(context.Background(), Options{Dir: b.TempDir(), Index: db})
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	for range 20000 {
		e := sample()
		if err := j.Append(&e); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if all, err := j.List(context.Background(), store.CallFilter{}); err != nil || len(all) != 100 {
			b.Fatal(len(all), err)
		}
	}
}

// discard is an index that costs nothing.
type discard struct{}

func (discard) PutCalls(context.Context, []store.Call) error                  { return nil }
func (discard) Calls(context.Context, store.CallFilter) ([]store.Call, error) { return nil, nil }
func (discard) LastCall(context.Context) (c store.Call, ok bool, err error)   { return }
func (discard) DropCalls(context.Context, int64) error                        { return nil }

// BenchmarkCarry is what it takes to drop a segment of 16 MiB in which few, or
// none, or all of 100 sessions are wanted.
func BenchmarkCarry(b *testing.B) {
	for name, wanted := range map[string]func(string) bool{
		"none": func(string) bool { return false },
		"one":  func(s string) bool { return s == "ses_7" },
		"all":  func(string) bool { return true },
	} {
		b.Run(name, func(b *testing.B) {
			j, err := Open(context.Background(), Options{Dir: b.TempDir(), Index: discard{}, Wanted: wanted})
			if err != nil {
				b.Fatal(err)
			}
			defer j.Close()
			for n := 0; len(j.segments) < 2; n++ {
				e := sample()
				e.Session = fmt.Sprint("ses_", n%100)
				if err := j.Append(&e); err != nil {
					b.Fatal(err)
				}
			}
			first := j.segments[:1]
			b.SetBytes(first[0].size)
			for b.Loop() {
				b.StopTimer()
				for _, session := range j.kept.sessions() {
					j.Forget(session)
				}
				b.StartTimer()
				if err := j.carry(first); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
