package sqlite

import (
	"runtime"
	"testing"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

// TestOutOfMemoryLeavesNothing: a connection that ran out of memory gives all of
// it back.
func TestOutOfMemoryLeavesNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("this system does not report how much memory is used")
	}
	c := serve(t, newDB(t), nil, nil, nativetest.Modern)
	greedy := args{"sql": "WITH RECURSIVE n(i, s) AS (VALUES(1, zeroblob(8000000)) UNION ALL SELECT i+1, zeroblob(8000000+i) FROM n WHERE i < 30) SELECT json_group_array(hex(substr(s, 1, 2000000))) FROM n"}
	c.fails("more memory", "query", greedy)
	before := resident()
	times := int64(8)
	if underRace {
		times = 3
	}
	for range times {
		c.fails("more memory", "query", greedy)
	}
	if grown := resident() - before; grown > times*maxMemory/4 {
		t.Errorf("%d MiB more after %d times", grown>>20, times)
	}
}
