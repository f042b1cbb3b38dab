package gateway_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if broken, ok := os.LookupEnv(dyingEnv); ok {
		dyingServer(broken)
		return
	}
	goleak.VerifyTestMain(m)
}
