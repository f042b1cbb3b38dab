//go:build !linux

package process

import "github.com/tine-mcp/tine/internal/driver/drivertest"

// watchedVar is of systems where commands are watched over.
const watchedVar = "TINE_TEST_WATCHED"

func watched() *drivertest.Suite { return suite }
