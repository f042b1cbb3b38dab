package process

import (
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
)

func left(testing.TB, driver.Handle) []string { return nil }
