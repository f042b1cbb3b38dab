package catalog

import (
	"log/slog"
	"os"
	"testing"

	"github.com/tine-mcp/tine/internal/config"
)

// Servers that nothing is made of are dropped, and none that something is being made of.
func TestDrop(t *testing.T) {
	cfg, err := config.Parse([]byte("servers: {time: {builtin: time, scope: session}, memory: {builtin: memory}}\n"), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := New(Options{Log: slog.New(slog.DiscardHandler), States: t.TempDir()})
	cur := all.Make(cfg, nil)
	all.Set(cur)
	c, release, err := all.Compose(cur, nil, List{Servers: []string{"time"}})
	if err != nil {
		t.Fatal(err)
	}
	known := func() bool {
		_, err := os.Stat(File(all.o.States, c.Key))
		if (err == nil) != (all.Written(c.Key) != nil) {
			t.Errorf("known in one place alone: %v", err)
		}
		return err == nil
	}
	unused := func() bool { return false }
	if all.Drop(c.Key, unused) || !known() {
		t.Error("dropped while something is being made of them")
	}
	release()
	if all.Drop(c.Key, func() bool { return true }) || !known() {
		t.Error("dropped while they are used")
	}
	if all.Drop(c.Key, func() bool { all.Keep(c.Key)(); return false }) || !known() {
		t.Error("dropped though something was made of them meanwhile")
	}
	if !all.Drop(c.Key, unused) || known() {
		t.Error("not dropped")
	}
	if pin, err := all.Pin(cur); err != nil || all.Drop(pin, unused) || all.Written(pin) == nil {
		t.Errorf("the config's are dropped: %v", err)
	}
	if len(all.kept)+len(all.dropping) > 0 {
		t.Errorf("left are %v and %v", all.kept, all.dropping)
	}
}
