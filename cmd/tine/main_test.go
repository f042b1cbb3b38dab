package main

import (
	"context"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(beTine) != "" {
		os.Exit(newCLI().run(context.Background()))
	}
	goleak.VerifyTestMain(m)
}
