package gateway_test

import (
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// TestPendingAndStopped asks why a run is pending, and stops it. No runner is there.
func TestPendingAndStopped(t *testing.T) {
	w := openWorlds(t, teamYAML)
	run := want[api.Run](t, w, "POST", "/v1/runs", `{"agent":"worker","prompt":"x"}`, asBob...)
	path := "/v1/runs/" + run.ID
	for _, query := range []string{"", "?wait=1ms"} {
		if got := want[api.Run](t, w, "GET", path+query, "", asBob...); !strings.HasPrefix(got.WaitsFor, "a runner; none is there") {
			t.Errorf("with %q it waits for %q", query, got.WaitsFor)
		}
	}
	w.refused(t, 400, "POST", path+"/stop", `{"child":true}`, asBob...)
	for _, body := range []string{"", `{}`, `{"children":true}`} {
		got := want[api.StoppedRun](t, w, "POST", path+"/stop", body, asBob...)
		if got.State != api.RunStopped || got.StoppedBy != "bob" || got.WaitsFor != "" || len(got.Below) != 0 {
			t.Errorf("stopped with %q: %+v", body, got)
		}
	}
}
