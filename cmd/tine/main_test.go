package main

import (
	"context"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/internal/driver/process"
)

func TestMain(m *testing.M) {
	process.Main()
	if os.Getenv(beTine) != "" {
		os.Exit(newCLI().run(context.Background()))
	}
	goleak.VerifyTestMain(m)
}
