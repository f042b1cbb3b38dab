package lines

import (
	"log/slog"
	"strings"
	"testing"
)

func TestLastWords(t *testing.T) {
	for name, test := range map[string]struct{ wrote, words, ending string }{
		"nothing":     {"", "", ", and wrote nothing to its standard error"},
		"blanks":      {" \n\n", "", ", and wrote nothing to its standard error"},
		"a line":      {"no such table\n", "; its last words: no such table", "; its last words: no such table"},
		"not UTF-8":   {"a\xffb\n", "; its last words: a\uFFFDb", "; its last words: a\uFFFDb"},
		"a long past": {strings.Repeat("x", maxWords) + "\nend\n", "; its last words: end", "; its last words: end"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := OpenLog(t.TempDir(), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if _, err := l.Write([]byte(test.wrote)); err != nil {
				t.Fatal(err)
			}
			log := slog.New(slog.DiscardHandler)
			if got := l.LastWords(log); got != test.words {
				t.Errorf("the last words are %q", got)
			}
			if got := l.Ending(log); got != test.ending {
				t.Errorf("the ending is %q", got)
			}
		})
	}
}
