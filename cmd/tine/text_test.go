package main

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestVisible(t *testing.T) {
	for _, tt := range []struct{ in, want, log string }{
		{"plain é\n\tx", "plain é\n\tx", ""},
		{"\x1b[31mred\x1b[0m", "^[[31mred^[[0m", "\x1b[31mred\x1b[0m"},
		{"\x1b]0;title\a", "^[]0;title^G", ""},
		{"\x1b[2J", "^[[2J", ""},
		{"\x1b[", "^[[", ""},
		{"\x1b[1;31", "^[[1;31", ""},
		{"a\r\nb\rc", "a\nb^Mc", ""},
		{"\x7f\u009b31m", `\u007f\u009b31m`, ""},
		{"\xff", `\xff`, ""},
		{"a\u202eb", `a\u202eb`, ""},
	} {
		if got := visible(tt.in, true); got != tt.want {
			t.Errorf("visible(%q) = %q, want %q", tt.in, got, tt.want)
		}
		if got := visible(tt.in, false); got != tt.in {
			t.Errorf("visible(%q) changed what goes to no terminal: %q", tt.in, got)
		}
		log := tt.log
		if log == "" {
			log = tt.want
		}
		if got := visibleLog(tt.in, true); got != log {
			t.Errorf("visibleLog(%q) = %q, want %q", tt.in, got, log)
		}
	}
}

// Of what a server writes nothing but colours reaches a terminal.
func FuzzVisibleLog(f *testing.F) {
	f.Add("\x1b[31m\x1b]0;x\a\x1b[\x1b[m\u009b")
	f.Fuzz(func(t *testing.T, s string) {
		if got := visible(s, true); hasControl(got) {
			t.Fatalf("visible(%q) = %q", s, got)
		}
		got := visibleLog(s, true)
		for {
			i := strings.IndexByte(got, 0x1b)
			if i < 0 {
				break
			}
			end := strings.IndexByte(got[i:], 'm')
			if end < 0 || strings.Trim(got[i+2:i+end], "0123456789;") != "" {
				t.Fatalf("visibleLog(%q) has %q", s, got[i:])
			}
			got = got[:i] + got[i+end+1:]
		}
		if hasControl(got) {
			t.Fatalf("visibleLog(%q) left %q", s, got)
		}
	})
}

func TestTableIsBounded(t *testing.T) {
	for width := 40; width <= 200; width += 20 {
		tc := newTestCLI(t)
		tc.outTerminal, tc.width = true, width
		tb := table{columns: columns("A", "B", "C")}
		tb.add(plain(strings.Repeat("a", 30)), plain("é"), plain(strings.Repeat("wide ", 50)))
		tb.add(plain("x"), plain(""), plain(""))
		tb.print(tc.cli)
		for line := range strings.Lines(tc.out.String()) {
			line = strings.TrimSuffix(line, "\n")
			if n := utf8.RuneCountInString(line); n > width {
				t.Errorf("%d characters on a terminal of %d: %q", n, width, line)
			}
			if strings.HasSuffix(line, " ") {
				t.Errorf("trailing space: %q", line)
			}
		}
	}
}

func TestTableHidesColumns(t *testing.T) {
	all := []column{{"ID", whole}, {"OWNER", varied}, {"NAME", filled}, {"KIND", when(false)}, {"CLOSED", when(true)}}
	for _, tt := range []struct {
		name string
		rows [][]string
		want string
	}{
		{"all the same", [][]string{{"1", "ann", "", "k", ""}, {"2", "ann", "", "k", ""}}, "ID  CLOSED\n1\n2\n"},
		{"two owners", [][]string{{"1", "ann", "", "k", ""}, {"2", "", "", "k", "x"}}, "ID  OWNER  CLOSED\n1   ann\n2          x\n"},
		{"a name", [][]string{{"1", "ann", "", "k", ""}, {"2", "ann", "n", "k", ""}}, "ID  NAME  CLOSED\n1\n2   n\n"},
		{"no rows", nil, ""},
	} {
		tc := newTestCLI(t)
		listing(tt.rows, all, func(r []string) []cell { return cells(r...) }).print(tc.cli)
		if got := tc.out.String(); got != tt.want {
			t.Errorf("%s: got\n%swant\n%s", tt.name, got, tt.want)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"files__read_file", "files__write_file", "time__now", "everything__echo"}
	for _, tt := range []struct {
		name string
		want []string
	}{
		{"files__raed_file", []string{"files__read_file", "files__write_file"}},
		{"read_file", []string{"files__read_file"}},
		{"FILES__READ_FILE", []string{"files__read_file", "files__write_file"}},
		{"echo", []string{"everything__echo"}},
		{"e", nil},
		{"", nil},
		{"unrelated", nil},
		{strings.Repeat("x", 1000), nil},
	} {
		if got := nearest(tt.name, known, 2); !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestAge(t *testing.T) {
	tc := newTestCLI(t)
	for d, want := range map[time.Duration]string{-time.Hour: "0s", 59 * time.Second: "59s", time.Minute: "1m", 59 * time.Minute: "59m", 47 * time.Hour: "47h", 49 * time.Hour: "2d"} {
		if got := tc.age(testNow.Add(-d)); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
	if got := tc.age(time.Time{}); got != "" {
		t.Errorf("never: %q", got)
	}
}
