package identity

import (
	"fmt"
	"strings"
	"testing"
)

// What a memo keeps is bounded in number and in size, and what it decides does
// not depend on whether it remembers.
func TestMemoIsBounded(t *testing.T) {
	g, _ := newGlob("fs__read*")
	a := &access{separator: "__", grants: []*rule{{tools: []glob{g}}}}
	kept := func() (n, bytes int) {
		a.reach("fs").tools.known.known.Range(func(name, _ any) bool {
			n++
			bytes += len(name.(string))
			return true
		})
		return n, bytes
	}
	for i := range 64 {
		long := fmt.Sprint(i, strings.Repeat("x", maxMemoName))
		if a.reach("fs").tools.gives(long) || !a.reach("fs").tools.gives("read"+long) || a.reach(long).seen {
			t.Fatalf("a long name is decided wrongly")
		}
	}
	if n, _ := kept(); n > 0 {
		t.Errorf("%d long names are remembered", n)
	}
	for i := range maxMemo {
		if name := fmt.Sprint(i, strings.Repeat("x", maxMemoName-8)); a.reach("fs").tools.gives(name) || !a.reach("fs").tools.gives("read"+name) {
			t.Fatalf("%s is decided wrongly", name)
		}
	}
	if n, bytes := kept(); n == 0 || n > maxMemo || bytes > maxMemo*maxMemoName {
		t.Errorf("%d names of %d bytes are remembered", n, bytes)
	}
}
