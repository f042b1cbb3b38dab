package telemetry

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// none returns a map that can't be written to.
func none(m map[string]int) map[string]int { return m }

func TestContain(t *testing.T) {
	var out bytes.Buffer
	log := NewLogger(&out, "info", "text", nil)
	m := NewMetrics("v1", nil)
	before := scrape(t, m.Handler())
	if !strings.Contains(before, `tine_panics_total{where="egress"} 0`) {
		t.Fatalf("metrics are\n%s", before)
	}
	var got error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer Contain(log, InEgress, "files", func(err error) { got = err })
		none(nil)["x"] = 1
	}()
	<-done
	var e *api.Error
	if !errors.As(got, &e) || e.Kind != api.KindInfrastructure || strings.Contains(e.Message, "nil map") {
		t.Errorf("the error is %v", got)
	}
	for _, want := range []string{"nil map", "files", "panic_test.go"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log does not say %s: %s", want, out.String())
		}
	}
	if after := scrape(t, m.Handler()); !strings.Contains(after, `tine_panics_total{where="egress"} 1`) {
		t.Errorf("metrics are\n%s", after)
	}
	func() { // nothing to contain
		defer Contain(log, InEgress, "files", func(error) { t.Error("no panic, and it ended") })
	}()
}
