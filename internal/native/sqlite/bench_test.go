package sqlite

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/native/nativetest"
)

func BenchmarkNew(b *testing.B) {
	h := newDB(b)
	b.ReportAllocs()
	for b.Loop() {
		_, c, err := New(nil, h, nil)
		if err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}

func must(b *testing.B, e *engine, sql string) {
	err := e.call(context.Background(), func(ctx context.Context, c *conn) error {
		_, err := c.execute(ctx, strings.NewReader(sql), nil, 10)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkFirstQuery opens a connection each time.
func BenchmarkFirstQuery(b *testing.B) {
	h := newDB(b)
	set := limits{timeout: idleAfter, maxRows: 10, maxSize: 1 << 30}
	e := newEngine(h, set)
	must(b, e, someRows)
	e.Close()
	for b.Loop() {
		e := newEngine(h, set)
		must(b, e, "SELECT a FROM t WHERE rowid = 500")
		e.Close()
	}
}

func BenchmarkQuery(b *testing.B) {
	e := newEngine(newDB(b), limits{timeout: idleAfter, maxRows: 10, maxSize: 1 << 30})
	defer e.Close()
	must(b, e, someRows)
	for b.Loop() {
		must(b, e, "SELECT a FROM t WHERE rowid = 500")
	}
}

func BenchmarkInsert(b *testing.B) {
	e := newEngine(newDB(b), limits{timeout: idleAfter, maxRows: 10, maxSize: 1 << 30})
	defer e.Close()
	must(b, e, someRows)
	for b.Loop() {
		must(b, e, "INSERT INTO t VALUES (1, 'x')")
	}
}

// BenchmarkIdle tells what an instance costs that was used once, with and without
// its connection.
func BenchmarkIdle(b *testing.B) {
	for _, used := range []bool{false, true} {
		b.Run(fmt.Sprintf("used=%v", used), func(b *testing.B) {
			w := newWorld(b)
			w.create("0", layer.Ref{})
			serve(b, w.head("0"), nil, nil, nativetest.Modern).exec(someRows)
			ref, err := w.store.Seal(w.state("0"))
			if err != nil {
				b.Fatal(err)
			}
			const n = 100
			before, rss := inUse(), resident()
			var engines []*engine
			for i := range n {
				w.create(fmt.Sprint("x", i), ref)
				_, c, err := New(nil, w.head(fmt.Sprint("x", i)), nil)
				if err != nil {
					b.Fatal(err)
				}
				engines = append(engines, c.(*engine))
				if used {
					must(b, c.(*engine), "INSERT INTO t VALUES (1, 2); SELECT count(*) FROM t")
				}
			}
			heap, more := inUse()-before, resident()-rss
			for b.Loop() {
			}
			b.ReportMetric(float64(heap)/n, "heapB/instance")
			b.ReportMetric(float64(more)/n, "rssB/instance")
			for _, e := range engines {
				e.Close()
			}
		})
	}
}

func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}
