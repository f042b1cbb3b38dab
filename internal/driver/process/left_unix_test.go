//go:build linux || darwin

package process

import (
	"fmt"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
)

// left lists the processes of an instance that still run.
func left(t testing.TB, h driver.Handle) []string {
	t.Helper()
	rec, err := records.Parse(h.Data)
	if err != nil {
		return nil // it never ran
	}
	var out []string
	scan(func(p member) {
		if p.of(family{token: rec.Token, dir: realPath(h.Dir)}) {
			out = append(out, fmt.Sprintf("process %d", p.PID))
		}
	})
	return out
}
