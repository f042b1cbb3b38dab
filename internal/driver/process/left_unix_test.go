//go:build linux || darwin

package process

import (
	"fmt"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/family"
)

// left lists the processes of an instance that still run.
func left(t testing.TB, h driver.Handle) []string {
	t.Helper()
	rec, err := records.Parse(h.Data)
	if err != nil {
		return nil // it never ran
	}
	var out []string
	for _, p := range new(census).Members(family.Family{Token: rec.Token, Dir: family.RealPath(h.Dir)}) {
		out = append(out, fmt.Sprintf("process %d", p.PID))
	}
	return out
}
