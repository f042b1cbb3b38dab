package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/driver/lines"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestNoisyServerIsCut(t *testing.T) {
	const limit = 64 << 10
	inst := suite.Start(t, New(Options{LogLimit: limit}))
	p := drivertest.Dial(t, inst)
	for range 3 {
		p.Call(t, "noise", map[string]any{"bytes": 4 * limit})
		testkit.Eventually(t, "the log is cut", func() bool {
			st, err := os.Stat(filepath.Join(inst.Handle().Dir, lines.LogName))
			return err == nil && st.Size() <= limit/2
		})
	}
	p.Call(t, "log", map[string]any{"text": "the last line"})
	r, err := inst.Logs(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<20)
	n, _ := r.Read(b)
	if got := string(b[:n]); !strings.HasSuffix(got, "the last line\n") || len(got) > limit || len(got) < limit/4 {
		t.Errorf("%d bytes are kept, ending in %.100q", len(got), got[max(0, len(got)-100):])
	}
}
