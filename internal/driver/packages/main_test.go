package packages_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/internal/driver/packages"
)

// fetcherVar makes the test's own program fetch a package into the folder that
// it names, until it is killed.
const fetcherVar = "TINE_TEST_FETCH_INTO"

func TestMain(m *testing.M) {
	if dir := os.Getenv(fetcherVar); dir != "" {
		os.Exit(fetchUntilKilled(dir))
	}
	goleak.VerifyTestMain(m)
}

func fetchUntilKilled(dir string) int {
	s, err := packages.Open(dir, packages.Options{Log: slog.New(slog.NewTextHandler(os.Stdout, nil))})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	w, _, err := packages.Parse("npx", []string{"-y", "@modelcontextprotocol/server-everything"})
	if err == nil {
		_, err = s.Get(context.Background(), *w, 0)
	}
	fmt.Println("not killed:", err)
	return 1
}
