package lines

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
)

// cut reads all frames of the input with a buffer of that size. The input comes
// in pieces of the given sizes, over and over. A frame that was too large is "!", and
// a line that is none begins with "?".
func cut(t testing.TB, input []byte, buffer, limit int, torn bool, sizes ...int) []string {
	t.Helper()
	pool := &sync.Pool{New: func() any { b := make([]byte, buffer); return &b }}
	var at, turn int
	f := Frames{limit: limit, log: slog.New(slog.DiscardHandler), buffers: pool, torn: torn, fill: func(f *Frames) (int, error) {
		if at == len(input) {
			return 0, io.EOF
		}
		n := copy(f.Room(), input[at:min(len(input), at+sizes[turn%len(sizes)])])
		if n == 0 {
			t.Fatal("no room")
		}
		at, turn = at+n, turn+1
		return n, nil
	}}
	out := []string{}
	var stray *driver.StrayLine
	for {
		frame, err := f.next()
		switch {
		case errors.As(err, new(*driver.FrameTooLarge)):
			out = append(out, "!")
		case errors.As(err, &stray):
			out = append(out, "?"+string(stray.Text))
		case errors.Is(err, io.EOF):
			if f.buf != nil {
				t.Error("a buffer is kept")
			}
			return out
		case err != nil:
			t.Fatal(err)
		default:
			out = append(out, string(frame))
		}
	}
}

func TestFrames(t *testing.T) {
	long := `{"x":"` + strings.Repeat("y", 90) + `"}` // 98 bytes
	for name, test := range map[string]struct {
		input string
		torn  bool
		want  []string
	}{
		"nothing":             {"", false, []string{}},
		"one":                 {"{}\n", false, []string{"{}"}},
		"many":                {"{\"a\":1}\n[{}]\n{}\n", false, []string{`{"a":1}`, "[{}]", "{}"}},
		"without an end":      {"{}\n{\"a\":", false, []string{"{}"}},
		"blank lines":         {"\n\n  \r\n{}\r\n\t\n", false, []string{"{}"}},
		"space around":        {" \t{} \r\n\ufeff{}\n", false, []string{"{}", "{}"}},
		"banners":             {"hello\nnull\n1\n\"x\"\n{}\n", false, []string{"?hello", "?null", "?1", `?"x"`, "{}"}},
		"a word at the end":   {"{}\n word ", false, []string{"{}", "?word"}},
		"as large as may be":  {`{"x":"` + strings.Repeat("y", 92) + "\"}\n", false, []string{`{"x":"` + strings.Repeat("y", 92) + `"}`}},
		"too large":           {`{"x":"` + strings.Repeat("y", 93) + "\"}\n{}\n", false, []string{"!", "{}"}},
		"far too large":       {`{"x":"` + strings.Repeat("y", 999) + "\"}\n{}\n", false, []string{"!", "{}"}},
		"endless":             {strings.Repeat("y", 5000), false, []string{"!"}},
		"large and small":     {long + "\n{}\n" + long + "\n", false, []string{long, "{}", long}},
		"a torn first line":   {"\"b\":{\"c\":1}}\n{}\n", true, []string{"{}"}},
		"torn at a brace":     {"{\"c\":1}}\n{}\n", true, []string{"{}"}},
		"torn, and yet whole": {"{\"c\":1}\n{bad\n", true, []string{`{"c":1}`, "{bad"}},
		"torn and too large":  {strings.Repeat("y", 500) + "\n{}}\n", true, []string{"!", "{}}"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, buffer := range []int{1, 16, 99, 100, 101, BufferSize} {
				for _, size := range []int{1, 2, 3, 7, 64, 101, BufferSize} {
					if got := cut(t, []byte(test.input), buffer, 100, test.torn, size); !slices.Equal(got, test.want) {
						t.Errorf("buffer %d, in pieces of %d: got %q, want %q", buffer, size, got, test.want)
					}
				}
			}
		})
	}
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte("{}\n[]\nbanner\n"), 3, false)
	f.Add([]byte(strings.Repeat("{", 200)+"\n{}\n"), 7, true)
	f.Add([]byte("\r\n\ufeff{}\n"), 1, false)
	f.Fuzz(func(t *testing.T, input []byte, size int, torn bool) {
		size = 1 + int(uint(size)%100)
		const limit = 64
		got := cut(t, input, size, limit, torn, 1+size/2, 1, 50)
		if whole := cut(t, input, 4096, limit, torn, 4096); !slices.Equal(got, whole) {
			t.Errorf("in pieces %q, whole %q", got, whole)
		}
		tooLarge := 0
		for _, line := range bytes.Split(input, []byte("\n")) {
			if len(line) > limit {
				tooLarge++
			}
		}
		for _, frame := range got {
			switch {
			case frame == "!":
				tooLarge--
			case strings.HasPrefix(frame, "?"):
				if !bytes.Contains(input, []byte(frame[1:])) {
					t.Errorf("line %q", frame)
				}
			case frame == "" || strings.ContainsAny(frame, "\n") || !bytes.Contains(input, []byte(frame)) || (frame[0] != '{' && frame[0] != '['):
				t.Errorf("frame %q", frame)
			}
		}
		if tooLarge != 0 {
			t.Errorf("%d lines that are too large were not reported, in %q", tooLarge, got)
		}
	})
}
