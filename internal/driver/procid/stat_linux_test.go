package procid

import (
	"strings"
	"testing"
)

func TestParseStat(t *testing.T) {
	rest := func(state, threads, vsize, envEnd string) string {
		f := make([]string, 50)
		for i := range f {
			f[i] = "7"
		}
		f[0], f[2], f[17], f[19], f[20], f[48] = state, "42", threads, "123456789012345", vsize, envEnd
		return strings.Join(f, " ")
	}
	for name, test := range map[string]struct {
		stat string
		want State
		bad  bool
	}{
		"plain":             {"1 (sh) " + rest("S", "1", "1000", "99") + "\n", State{ID: ID{Start: 123456789012345}, Group: 42}, false},
		"name like a trap":  {"1 (a) R 1 (b)) " + rest("R", "3", "1000", "99"), State{ID: ID{Start: 123456789012345}, Group: 42}, false},
		"dead":              {"1 (sh) " + rest("Z", "1", "0", "0"), State{ID: ID{Start: 123456789012345}, Group: 42, Dead: true}, false},
		"first thread dead": {"1 (sh) " + rest("Z", "4", "1000", "99"), State{ID: ID{Start: 123456789012345}, Group: 42}, false},
		"in an exec":        {"1 (sh) " + rest("R", "1", "1000", "0"), State{ID: ID{Start: 123456789012345}, Group: 42, Young: true}, false},
		"of the kernel":     {"2 (kthreadd) " + rest("S", "1", "0", "0"), State{ID: ID{Start: 123456789012345}, Group: 42}, false},
		"short":             {"1 (sh) S 1 2", State{}, true},
		"empty":             {"", State{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseStat([]byte(test.stat))
			if got != test.want || (err != nil) != test.bad {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}
