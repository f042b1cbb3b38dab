package driver

import (
	"errors"
	"regexp"
	"slices"
	"strings"
)

// A WordsError is an error with what a program wrote to its standard error before it.
// The words may repeat arguments of a call, and so are not part of the error's text:
// not every reader of the error may read them.
type WordsError struct {
	Err   error
	Words string
}

func (e *WordsError) Error() string { return e.Err.Error() }

func (e *WordsError) Unwrap() error { return e.Err }

// WithWords adds to an error what a program wrote; nothing where it wrote nothing.
func WithWords(err error, words string) error {
	if words == "" {
		return err
	}
	return &WordsError{err, words}
}

// Words is what a program wrote before an error, and empty where that is not known.
func Words(err error) string {
	var w *WordsError
	if errors.As(err, &w) {
		return w.Words
	}
	return ""
}

// MaxWords and maxLines bound what an error has of a program's log.
const (
	MaxWords = 2 << 10
	maxLines = 5
)

// wordless are lines that say nothing without the ones around them: the frames of a
// stack, marks below a line of code, brackets, and the version that Node.js ends with;
// and what npm, uv and pip warn of before they start a program.
var wordless = regexp.MustCompile("^(\\s+at .*|[\\s^~{}\\[\\])(,;]*|Node\\.js v\\S+" +
	"|npm (?:warn|WARN|notice)\\b.*|warning: (?:`VIRTUAL_ENV=|Failed to hardlink files).*|\\[notice\\] .*)$")

// headline is the line that names an error, which details may follow.
var headline = regexp.MustCompile(`^\s*(?:\[cause\]: )?(?:Uncaught )?[\w.$]*(?:Error|Exception)(?: \[\w+\])?:`)

// LastWords are the last lines of a program's log that say something, as an error has
// them: the one that names the last error is among them.
func LastWords(log string) string {
	log = strings.ToValidUTF8(log, "\uFFFD")
	var all []string
	for line := range strings.Lines(log) {
		all = append(all, strings.TrimRight(line, " \t\r\n"))
	}
	if words := last(slices.DeleteFunc(slices.Clone(all), wordless.MatchString)); words != "" {
		return words
	}
	return last(all)
}

func last(lines []string) string {
	if over := len(lines) - maxLines; over > 0 {
		named := lines[over]
		for i := len(lines) - 1; i >= 0; i-- {
			if headline.MatchString(lines[i]) {
				named = lines[min(i, over)]
				break
			}
		}
		lines = append([]string{named}, lines[over+1:]...)
	}
	for len(lines) > 1 && len(strings.Join(lines, "\n")) > MaxWords {
		lines = lines[1:]
	}
	text := strings.TrimSpace(strings.Join(lines, "\n"))
	return strings.ToValidUTF8(text[max(0, len(text)-MaxWords):], "")
}
