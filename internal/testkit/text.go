package testkit

import (
	"strings"
	"testing"
)

// Has fails the test for each of the parts that is not in got.
func Has(t testing.TB, what, got string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(got, p) {
			t.Errorf("%s is %q, want it to have %q", what, got, p)
		}
	}
}

// Lacks fails the test for each of the parts that is in got.
func Lacks(t testing.TB, what, got string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if strings.Contains(got, p) {
			t.Errorf("%s is %q, it must not have %q", what, got, p)
		}
	}
}
