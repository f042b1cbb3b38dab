package session_test

import (
	"testing"

	"go.uber.org/goleak"

	_ "github.com/tine-mcp/tine/internal/driver/kinds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
