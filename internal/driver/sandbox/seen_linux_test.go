//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/internal/driver/sandbox/layout"
)

// A process that can't look at the host any more goes on with what it found before,
// however old it is, and also after it was to be forgotten.
func TestSightsOfTheBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var work sync.WaitGroup
		blind, looks := false, 0
		s := &sights{work: &work, blind: func() bool { return blind }}
		get := func(key string) error {
			_, err := s.get(t.Context(), key, func(context.Context) (*sight, error) {
				if looks++; blind {
					return nil, errors.New("it can't look")
				}
				return &sight{layout: &layout.Layout{}}, nil
			})
			work.Wait()
			return err
		}
		if err := get("a"); err != nil || looks != 1 {
			t.Fatalf("%v after %d looks", err, looks)
		}
		time.Sleep(sightNew + time.Second)
		if err := get("a"); err != nil || looks != 2 {
			t.Errorf("%v after %d looks, want another in the background", err, looks)
		}
		blind = true
		for _, later := range []time.Duration{sightNew, sightOld, 7 * 24 * time.Hour} {
			time.Sleep(later + time.Second)
			s.forget()
			if err := get("a"); err != nil || looks != 2 {
				t.Errorf("after %s: %v after %d looks", later, err, looks)
			}
		}
		if err := get("b"); err == nil {
			t.Error("what was never found is there")
		}
	})
}
