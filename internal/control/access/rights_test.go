package access_test

import (
	"errors"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
)

func TestAllowed(t *testing.T) {
	people := people(t)
	for _, tt := range []struct {
		who   string
		right string
		want  bool
	}{
		{"user", "", true}, {"operator", "", true}, {"token", "", true}, {"token", api.AllowFork, true}, {"local", api.AllowClose, true},
		{"run", access.Freely, true}, {"run", "", false}, {"run", api.AllowFork, false}, {"narrow", api.AllowTrajectory, false},
		{"reader", access.Freely, true}, {"reader", api.AllowTrajectory, true}, {"reader", api.AllowClose, false}, {"reader", "", false},
		{"odd", api.AllowTrajectory, false}, {"odd", api.AllowFork, false}, {"odd", api.AllowClose, true},
	} {
		err := access.Allowed(people[tt.who], tt.right)
		var e *api.Error
		if (err == nil) != tt.want || err != nil && (!errors.As(err, &e) || e.Status != 403 || e.Kind != api.KindRefused) {
			t.Errorf("%s, %q: %v", tt.who, tt.right, err)
		}
	}
}
