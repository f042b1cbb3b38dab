package testkit_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/internal/testkit"
)

// judge is a test that keeps why it failed.
type judge struct {
	testing.TB
	why string
}

func (*judge) Helper() {}

func (j *judge) Errorf(format string, args ...any) { j.why += fmt.Sprintf(format, args...) + ";" }

func (j *judge) Fatalf(format string, args ...any) {
	j.Errorf(format, args...)
	runtime.Goexit()
}

// verdict runs a test in time that passes by itself, and returns why it failed.
func verdict(t *testing.T, run func(t testing.TB)) string {
	j := &judge{TB: t}
	synctest.Test(t, func(*testing.T) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			run(j)
		}()
		<-done
	})
	return j.why
}

func TestWaiting(t *testing.T) {
	soon := func() func() bool {
		begun := time.Now()
		return func() bool { return time.Since(begun) > testkit.Patience/2 }
	}
	for _, tt := range []struct {
		name, want string
		run        func(t testing.TB)
	}{
		{"it comes", "", func(t testing.TB) { testkit.Eventually(t, "it", soon()) }},
		{"never", "never happened: it: it is not so;", func(t testing.TB) { testkit.Eventually(t, "it", func() bool { return false }) }},
		{"never, with a reason", "never happened: it: torn;", func(t testing.TB) {
			testkit.Succeeds(t, "it", func() error { return errors.New("torn") })
		}},
		{"sent", "", func(t testing.TB) {
			ch := make(chan int)
			go func() {
				time.Sleep(testkit.Patience / 2) // in a bubble
				ch <- 7
			}()
			if got := testkit.Within(t, "a number", ch); got != 7 {
				t.Errorf("got %d", got)
			}
		}},
		{"closed", "", func(t testing.TB) {
			ch := make(chan int)
			close(ch)
			testkit.Within(t, "an end", ch)
		}},
		{"never sent", "never happened: a number;", func(t testing.TB) { testkit.Within(t, "a number", make(chan int)) }},
	} {
		if got := verdict(t, tt.run); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestText(t *testing.T) {
	j := &judge{TB: t}
	testkit.Has(j, "x", "one two", "one", "two")
	testkit.Lacks(j, "x", "one two", "three")
	if j.why != "" {
		t.Error(j.why)
	}
	testkit.Has(j, "x", "one two", "one", "three")
	testkit.Lacks(j, "x", "one two", "two", "three")
	if want := `x is "one two", want it to have "three";x is "one two", it must not have "two";`; j.why != want {
		t.Errorf("%q, want %q", j.why, want)
	}
}

func TestLog(t *testing.T) {
	var l testkit.Log
	l.Logger().Debug("one two", "k", 3)
	l.Logger().Warn("two three")
	for words, want := range map[[2]string]int{{"two", ""}: 2, {"two", "k=3"}: 1, {"level=WARN", "one"}: 0} {
		if got := l.Count(words[:]...); got != want {
			t.Errorf("%q in %d lines, want %d, of\n%s", words, got, want, &l)
		}
	}
}
