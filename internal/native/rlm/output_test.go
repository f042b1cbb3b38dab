//go:build unix

package rlm

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/testkit"
)

// TestOutputIsWhole prints in ways in which some of it could be lost, torn or told by
// another call.
func TestOutputIsWhole(t *testing.T) {
	w := newWorld(t, map[string]any{"output": 1_000_000})
	const euros = 30_000 // three bytes each: no power of two is between two of them
	all := strings.Repeat("€", euros)
	w.is(fmt.Sprintf("print('€' * %d)", euros), all)
	w.is("import fcntl, os, termios\nfor b in '€'.encode() * 3:\n    os.write(1, bytes([b]))\n    while any(fcntl.ioctl(1, termios.FIONREAD, bytes(4))): pass", "€€€")
	w.is("import subprocess, sys\n_ = subprocess.run([sys.executable, '-c', \"print('€' * 9999)\"])", strings.Repeat("€", 9999))
	w.is("_ = os.write(1, b'half \\xe2\\x82')", "half \ufffd")
	w.is("1", "1")
	// All that a pipe holds, and more, at once and from two ends.
	for range 20 {
		got := w.exec("print('o' * 65_000); print('e' * 65_000, file=sys.stderr)")
		if strings.Count(got, "o") != 65_000 || strings.Count(got, "e") != 65_001 {
			t.Fatalf("%d characters are there", len(got))
		}
		w.is("2", "2")
	}
	if runtime.GOOS == "linux" { // a pipe can be made larger
		w.exec("_ = fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20)")
		for range 20 {
			w.exec("_ = os.write(1, b'p' * 500_000)")
			w.is("len(_output)", "500000")
		}
	}
}

// TestStreamsComeBack has code take its streams away, one after the other.
func TestStreamsComeBack(t *testing.T) {
	w := newWorld(t, nil)
	for _, code := range []string{
		"import os, sys, io; os.close(1); os.close(2)",
		"os.dup2(os.open(os.devnull, os.O_RDWR), 1); os.dup2(1, 2);",
		"sys.stdout = sys.stderr = io.StringIO(); print('nowhere')",
		"sys.stdout = None",
		"sys.stdout.close(); sys.stderr.close()",
		"_ = sys.stdout.detach()",
		"sys.stdout.reconfigure(encoding='utf-16', errors='strict', line_buffering=False)",
		"sys.__stdout__ = None",
		"sys.stdin.close()",
		"class Odd:\n    def __eq__(self, other): raise RuntimeError\nsys.stdout = Odd()",
	} {
		w.is(code, "(no output)")
		w.is("print('é'); print('f', file=sys.stderr); 1", "é\n1\n[stderr] f")
		w.is("print('g', file=sys.__stdout__); _ = os.system('echo h')", "g\nh")
	}
}

// TestLinesOfCode holds that tracebacks show lines of code that ran before, and that not
// all code is kept.
func TestLinesOfCode(t *testing.T) {
	w := newWorld(t, nil)
	w.exec("def old():\n    return 1 / 0")
	testkit.Has(t, "the traceback", w.exec("old()"), "return 1 / 0")
	w.exec("import linecache")
	for i := range 1010 {
		w.is(fmt.Sprint(i), fmt.Sprint(i))
	}
	w.is("sum(name.startswith('<cell') for name in linecache.cache)", "1000")
	testkit.Has(t, "the traceback", w.exec("old()"), "ZeroDivisionError", "in old")
	w.exec("def large(): 1 / 0 #" + strings.Repeat("x", 3<<20))
	w.exec("large #" + strings.Repeat("x", 3<<20))
	w.is("sum(len(lines[2][0]) for name, lines in linecache.cache.items() if name.startswith('<cell')) < 4 << 20", "True")
}
