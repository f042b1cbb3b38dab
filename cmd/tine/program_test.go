package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestProgramName holds that help and advice name the command that a wheel installs.
func TestProgramName(t *testing.T) {
	for path, want := range map[string]string{"tine": "tine", "/usr/bin/tine-2": "tine", "/v/bin/tineworld": "tineworld", "tineworld.exe": "tineworld", "": "tine"} {
		if got := programName(path); got != want {
			t.Errorf("%q is %s, want %s", path, got, want)
		}
	}
	for _, args := range [][]string{{"--help"}, {"session", "open", "--help"}, {"session", "exec"}, {"nonsense"}, {"tools", "--url", "http://127.0.0.1:1"}} {
		var out bytes.Buffer
		c := newCLI()
		c.name, c.args, c.stdout, c.stderr = wheelProgram, args, &out, &out
		c.lookupEnv = func(string) (string, bool) { return "", false }
		c.run(t.Context())
		if text := out.String(); ours.MatchString(text) || !strings.Contains(text, "tineworld ") {
			t.Errorf("%q prints\n%s", args, text)
		}
	}
}
