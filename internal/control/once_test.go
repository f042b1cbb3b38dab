package control

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/tine-mcp/tine/api"
)

// TestKeyUnderWay checks that a request waits for another one with its key, and
// not for ever.
func TestKeyUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c creations
		take := func(key string) (func(), error) { return c.take(t.Context(), creationKey{"ada", key}, nil) }
		end, err := take("k")
		if err != nil {
			t.Fatal(err)
		}
		other, err := take("other")
		if err != nil {
			t.Fatal(err)
		}
		other()
		if _, err := take("k"); err == nil {
			t.Fatal("taken twice")
		} else if e, ok := err.(*api.Error); !ok || e.Status != http.StatusConflict || !e.Retryable {
			t.Errorf("got %v", err)
		}
		got := make(chan error)
		go func() {
			end, err := take("k")
			if err == nil {
				end()
			}
			got <- err
		}()
		synctest.Wait() // it waits
		end()
		if err := <-got; err != nil {
			t.Error(err)
		}
		if _, err := take("k"); err != nil {
			t.Error(fmt.Errorf("after both: %w", err))
		}
	})
}
