package packages

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A Python that is too old is reported as that, and not as a missing package.
func TestMendsOfAnOldPython(t *testing.T) {
	for name, printed := range map[string]string{
		"pip": "ERROR: Ignored the following versions that require a different python version: 1.0 Requires-Python >=3.13\nERROR: Could not find a version that satisfies the requirement x\nERROR: No matching distribution found for x\n",
		"uv":  "  x No solution found when resolving tool dependencies:\n  Because the current Python version (3.11.2) does not satisfy Python>=3.13 and x depends on Python>=3.13\n",
	} {
		out := &output{}
		fmt.Fprint(out, printed)
		err := explain(t.Context(), Wanted{Package: "x"}, name, out, errors.New("exit status 1"))
		if !strings.Contains(err.Error(), "uvx --python 3.13 PACKAGE") || errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
