package lines

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
)

func TestLastWords(t *testing.T) {
	const silent = ", and wrote nothing to its standard error"
	for name, test := range map[string]struct{ wrote, words, silent string }{
		"nothing":     {"", "", silent},
		"blanks":      {" \n\n", "", silent},
		"a line":      {"no such table\n", "no such table", ""},
		"not UTF-8":   {"a\xffb\n", "a\uFFFDb", ""},
		"a long past": {strings.Repeat("x", 2*driver.MaxWords) + "\nend\n", "end", ""},
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
			// The text of the error is for every reader.
			if err := l.Ending(log, "fs", "exited with status 1"); err.Error() != `server "fs" exited with status 1`+test.silent || driver.Words(err) != test.words {
				t.Errorf("the ending is %q with the words %q", err, driver.Words(err))
			}
		})
	}
}
