package catalog

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/tine-mcp/tine/internal/config"
)

// The views of sessions that are over are dropped; those that sessions have stay.
func TestViewsOfSessionsThatAreOver(t *testing.T) {
	cfg, err := config.Parse([]byte("servers: {mem: {command: x}}"), config.Options{Path: "tine.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[*Catalog]bool)
	all := New(Options{Log: slog.New(slog.DiscardHandler), InUse: func() map[*Catalog]bool { return used }})
	cur := all.Make(cfg, nil)
	all.Set(cur)
	of := func(file string) *Catalog {
		return all.View(cur, "", []string{"mem"}, map[string]Member{"mem": {Template: fmt.Appendf(nil, "%q", file)}}, nil)
	}
	stays := of("stays")
	used[stays] = true
	for n := range 2 * mostViews {
		of(fmt.Sprint(n))
		if len(all.views) > mostViews {
			t.Fatalf("%d views are kept", len(all.views))
		}
	}
	if of("stays") != stays {
		t.Error("the view of a session was made again")
	}
	all.Set(all.Make(cfg, nil))
	if len(all.views) != 0 {
		t.Error("views of the last catalog are kept")
	}
}
