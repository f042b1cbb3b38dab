package main

import (
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
)

func TestConnectionsFitTheFiles(t *testing.T) {
	for _, test := range []struct{ want, files, n int }{
		{4096, 1 << 20, 4096}, {4096, 8192, 4096}, {4096, 8190, 4095}, {4096, 256, 128}, {10, 256, 10}, {10, 1, 1},
	} {
		n, warning := connections(test.want, test.files)
		if n != test.n || (warning == "") != (n == test.want) {
			t.Errorf("%d clients, %d files: %d, %q", test.want, test.files, n, warning)
		}
	}
	low := checkFiles(nil, 256)
	if low.Status != driver.FoundWarn || !strings.Contains(low.Detail, "256 files") || !strings.Contains(low.Detail, "128 clients") || !strings.Contains(low.Mend, "LimitNOFILE=") {
		t.Errorf("%+v", low)
	}
	conf := config.Default()
	conf.Limits.Connections = 100
	if ch := checkFiles(conf, 256); ch.Status != driver.FoundOK {
		t.Errorf("%+v", ch)
	}
}
