package gateway_test

import (
	"fmt"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// TestSizeWithoutTheHidden checks that the size of a snapshot says nothing of servers
// that its reader does not see.
func TestSizeWithoutTheHidden(t *testing.T) {
	t.Parallel()
	w := openCurtain(t)
	s := w.open(t, `{}`, asAda...)
	for _, tool := range []string{"n__grow", "m__add"} { // an operator uses n in her session
		want[api.CallResponse](t, w, "POST", "/v1/call", fmt.Sprintf(`{"tool":%q,"session":%q}`, tool, s.ID), asOps...)
	}
	snap := want[api.Snapshot](t, w, "POST", "/v1/sessions/"+s.ID+"/snapshots", `{}`, asOps...)
	shown := map[string]api.Snapshot{"one": want[api.Snapshot](t, w, "GET", "/v1/snapshots/"+snap.ID, "", asAda...)}
	for i, one := range want[api.SnapshotList](t, w, "GET", "/v1/snapshots", "", asAda...).Snapshots {
		shown[fmt.Sprint("list ", i)] = one
	}
	for where, got := range shown {
		var sum int64
		for _, m := range got.Servers {
			sum += m.Size
		}
		if len(got.Servers) != 1 || got.Size != sum || snap.Size <= sum {
			t.Errorf("%s: ada sees %+v of %d bytes", where, got, snap.Size)
		}
	}
}
