package sqlite

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/ncruces/go-sqlite3"
)

// linearFunctions replaces functions of SQLite that need time by the product of
// the lengths of their arguments. Of two strings of some megabytes that is hours,
// in which nothing can interrupt them.
func linearFunctions(c *sqlite3.Conn) error {
	const pure = sqlite3.DETERMINISTIC | sqlite3.INNOCUOUS
	for _, f := range []struct {
		name string
		args int
		call sqlite3.ScalarFunction
	}{
		{"instr", 2, instr},
		{"replace", 3, replace},
		{"trim", 1, trim(true, true)},
		{"trim", 2, trim(true, true)},
		{"ltrim", 1, trim(true, false)},
		{"ltrim", 2, trim(true, false)},
		{"rtrim", 1, trim(false, true)},
		{"rtrim", 2, trim(false, true)},
	} {
		if err := c.CreateFunction(f.name, f.args, pure, f.call); err != nil {
			return err
		}
	}
	return nil
}

func anyNull(arg []sqlite3.Value) bool {
	for _, a := range arg {
		if a.Type() == sqlite3.NULL {
			return true
		}
	}
	return false
}

func instr(ctx sqlite3.Context, arg ...sqlite3.Value) {
	if anyNull(arg) {
		return
	}
	if arg[0].Type() == sqlite3.BLOB && arg[1].Type() == sqlite3.BLOB {
		ctx.ResultInt(bytes.Index(arg[0].RawBlob(), arg[1].RawBlob()) + 1)
		return
	}
	// Text of a number is made by asking for it, which may move the other.
	hay, needle := bytes.Clone(arg[0].RawText()), arg[1].RawText()
	at := bytes.Index(hay, needle)
	if at >= 0 {
		at = utf8.RuneCount(hay[:at])
	}
	ctx.ResultInt(at + 1)
}

func replace(ctx sqlite3.Context, arg ...sqlite3.Value) {
	if anyNull(arg) {
		return
	}
	text, old, new := arg[0].Text(), arg[1].Text(), arg[2].Text()
	if old == "" {
		ctx.ResultText(text)
		return
	}
	// Counted first: the result may be larger than all memory.
	n := strings.Count(text, old)
	if len(text)+n*(len(new)-len(old)) > maxLength {
		ctx.ResultError(sqlite3.TOOBIG)
		return
	}
	ctx.ResultText(strings.ReplaceAll(text, old, new))
}

func trim(left, right bool) sqlite3.ScalarFunction {
	return func(ctx sqlite3.Context, arg ...sqlite3.Value) {
		if anyNull(arg) {
			return
		}
		text, set := arg[0].Text(), map[rune]bool{' ': true}
		if len(arg) > 1 {
			clear(set)
			for _, r := range arg[1].Text() {
				set[r] = true
			}
		}
		in := func(r rune) bool { return set[r] }
		if left {
			text = strings.TrimLeftFunc(text, in)
		}
		if right {
			text = strings.TrimRightFunc(text, in)
		}
		ctx.ResultText(text)
	}
}
