package session

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
)

// Another attempt helps where something was in the way, and not with a snapshot
// that does not fit.
func TestMemberErrorSaysWhatIsWorthAnotherAttempt(t *testing.T) {
	for name, test := range map[string]struct {
		err       error
		kind      api.Kind
		status    int
		retryable bool
	}{
		"something in the way": {errors.New("no space left"), api.KindInfrastructure, 0, true},
		"too slow":             {context.DeadlineExceeded, api.KindTimeout, 0, true},
		"unfit":                {fmt.Errorf("made on another CPU: %w", driver.ErrUnfit), api.KindRefused, http.StatusConflict, false},
	} {
		var got *api.Error
		if err := memberError("db", "making its state", test.err); !errors.As(err, &got) || got.Kind != test.kind || got.Status != test.status || got.Retryable != test.retryable {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
