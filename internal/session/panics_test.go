package session

import (
	"strings"
	"testing"
)

// A panic in what is done for one of several members is one of who waits for
// all of them, and all have ended by then.
func TestPanicsReachWhoWaits(t *testing.T) {
	for _, bad := range []int{0, 99} {
		done := make(chan int, 100)
		func() {
			defer func() {
				v := recover()
				if err, ok := v.(error); !ok || !strings.Contains(err.Error(), "a mistake") || !strings.Contains(err.Error(), "panics_test.go") {
					t.Errorf("panicked with %v", v)
				}
			}()
			_ = atAll(100, func(i int) error {
				if i == bad {
					panic("a mistake")
				}
				done <- i
				return nil
			})
		}()
		if len(done) != 99 {
			t.Errorf("%d of the others ended", len(done))
		}
	}
}
