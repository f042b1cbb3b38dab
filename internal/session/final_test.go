package session

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
)

// What fails for good is not called retryable, however it is wrapped.
func TestFinalFailures(t *testing.T) {
	err := memberError("a", "seeding", fmt.Errorf("state: %w", driver.Final(errors.New("no such image"))))
	var e *api.Error
	if !errors.As(err, &e) || e.Retryable || e.Kind != api.KindInfrastructure || e.Message != `server "a": seeding: state: no such image` {
		t.Errorf("got %+v", e)
	}
	whole := joined([]error{err, &api.Error{Kind: api.KindInfrastructure, Retryable: true, Server: "b", Message: "busy"}})
	if !errors.As(whole, &e) || e.Retryable {
		t.Errorf("together %+v", e)
	}
}
