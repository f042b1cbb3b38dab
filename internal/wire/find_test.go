package wire_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/tine-mcp/tine/internal/wire"
)

func TestFind(t *testing.T) {
	const doc = ` {"a":{"b":{"c":"x\ty"}},"l":[1],"n":null,"e\u0073c":12345678901234567890,"d":{"k":1,"k":2}} `
	tests := []struct {
		path []string
		want string
	}{
		{[]string{"a", "b", "c"}, `"x\ty"`},
		{[]string{"a", "b"}, `{"c":"x\ty"}`},
		{[]string{"esc"}, `12345678901234567890`},
		{[]string{"l"}, `[1]`},
		{[]string{"l", "0"}, ``},
		{[]string{"n"}, `null`},
		{[]string{"n", "x"}, ``},
		{[]string{"zz"}, ``},
		{[]string{"a", "zz", "c"}, ``},
		{[]string{"A"}, ``},
	}
	for _, tt := range tests {
		s, err := wire.Find([]byte(doc), tt.path...)
		if err != nil || string(s.Of([]byte(doc))) != tt.want || s.Ok() != (tt.want != "") {
			t.Errorf("Find(%v) = %q, %v; want %q", tt.path, s.Of([]byte(doc)), err, tt.want)
		}
	}
	if s, err := wire.Find([]byte(doc), "d", "k"); err == nil {
		t.Errorf("a key that stands twice gave %q", s.Of([]byte(doc)))
	}
	if _, err := wire.Find([]byte(`{"a":`), "a"); err == nil {
		t.Error("Find passed over an object that is cut off")
	}
	if got := wire.FindString([]byte(doc), "a", "b", "c"); got != "x\ty" {
		t.Errorf("FindString = %q", got)
	}
	for _, path := range [][]string{{"l"}, {"zz"}, {"d", "k"}} {
		if got := wire.FindString([]byte(doc), path...); got != "" {
			t.Errorf("FindString(%v) = %q", path, got)
		}
	}
}

func TestMembersAndItems(t *testing.T) {
	doc := []byte(`{"a":1,"\u0062":[ 1 ,"x",{"y":2}],"a":2}`)
	var got []string
	var list wire.Span
	err := wire.Members(doc, func(key string, val wire.Span) error {
		got = append(got, key+"="+string(val.Of(doc)))
		if key == "b" {
			list = val
		}
		return nil
	})
	if want := []string{`a=1`, `b=[ 1 ,"x",{"y":2}]`, `a=2`}; err != nil || !slices.Equal(got, want) {
		t.Errorf("Members: %q, %v; want %q", got, err, want)
	}
	items, err := wire.Items(list.Of(doc))
	got = nil
	for _, s := range items {
		got = append(got, string(s.Of(list.Of(doc))))
	}
	if want := []string{`1`, `"x"`, `{"y":2}`}; err != nil || !slices.Equal(got, want) {
		t.Errorf("Items: %q, %v; want %q", got, err, want)
	}
	if items, err := wire.Items([]byte(` [ ] `)); err != nil || len(items) != 0 {
		t.Errorf("Items of an empty array: %v, %v", items, err)
	}
	for _, bad := range []string{``, `{}`, `[`, `[1`, `[1,]`, `[,1]`, `[1 2]`, `[1]x`} {
		if items, err := wire.Items([]byte(bad)); err == nil {
			t.Errorf("Items(%q) = %v", bad, items)
		}
	}
	stop := errors.New("stop")
	calls := 0
	err = wire.Members(doc, func(string, wire.Span) error { calls++; return stop })
	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("Members after an error of fn: %d calls, %v", calls, err)
	}
	for _, bad := range []string{``, `[]`, `{`, `{"a"}`, `{"a":1`, `{"a":1,}`} {
		if err := wire.Members([]byte(bad), func(string, wire.Span) error { return nil }); err == nil {
			t.Errorf("Members(%q) passed", bad)
		}
	}
}

// FuzzQuote holds Quote and Unquote to encoding/json.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "plain", "a\"b\\c/d", "<&>", "\x00\x1f\x7f", "é日😀", "\xff\xc0", "\u2028", `"a"`, `"a"b"`, `"\u00e9\ud83d\ude00\ud800"`, "\"a\nb\"", `"`, `""`, `"\"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q := wire.Quote(s)
		var want string
		if err := json.Unmarshal(q, &want); err != nil {
			t.Fatalf("Quote(%q) = %s: %v", s, q, err)
		}
		if utf8.ValidString(s) && want != s {
			t.Fatalf("Quote(%q) means %q", s, want)
		}
		if got, ok := wire.Unquote(q); !ok || got != want {
			t.Fatalf("Unquote(%s) = %q, %v; encoding/json reads %q", q, got, ok, want)
		}
		var direct string
		err := json.Unmarshal([]byte(s), &direct)
		isString := err == nil && len(s) > 0 && s[0] == '"' && s[len(s)-1] == '"'
		got, ok := wire.Unquote([]byte(s))
		if ok != isString || ok && got != direct {
			t.Fatalf("Unquote(%q) = %q, %v; encoding/json reads %q, %v", s, got, ok, direct, err)
		}
	})
}

// FuzzFind holds Find to encoding/json at one and two levels.
func FuzzFind(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1},"b":[{"a":2}]}`), "a", "b")
	f.Add([]byte(` {"\u0061":{"b":{}}} `), "a", "b")
	f.Add([]byte(`{"a":1,"a":{"b":2}}`), "a", "b")
	f.Fuzz(func(t *testing.T, b []byte, k1, k2 string) {
		s, err := wire.Find(b, k1, k2)
		if err != nil {
			return
		}
		ms, ok := members(b)
		if !ok {
			return
		}
		raw, times := lookup(ms, k1)
		if times > 1 {
			t.Fatalf("Find(%q, %q) passed with the key %d times", b, k1, times)
		}
		if want := at([]byte(raw), k2); times == 1 && string(s.Of(b)) != want {
			t.Fatalf("Find(%q, %q, %q) = %q, encoding/json reads %q", b, k1, k2, s.Of(b), want)
		}
		if times == 0 && s.Ok() {
			t.Fatalf("Find(%q, %q, %q) = %q, there is none", b, k1, k2, s.Of(b))
		}
	})
}

func TestProtocolWords(t *testing.T) {
	for i, v := range wire.Versions {
		if !wire.Known(v) || wire.Modern(v) != (v >= wire.V20260728) {
			t.Errorf("%s: known %v, modern %v", v, wire.Known(v), wire.Modern(v))
		}
		if i > 0 && wire.Versions[i-1] <= v {
			t.Errorf("%s stands before %s", wire.Versions[i-1], v)
		}
	}
	for _, v := range []string{"", "2026", "1900-01-01", "2099-01-01", "2026-07-28 "} {
		if wire.Known(v) {
			t.Errorf("%q is known", v)
		}
	}
	if wire.Modern("") || wire.Modern("garbage") && wire.Known("garbage") {
		t.Error("no revision at all is modern")
	}
	levels := []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
	for i, l := range levels {
		if wire.LevelRank(l) != i {
			t.Errorf("rank of %s is %d", l, wire.LevelRank(l))
		}
	}
	if wire.LevelRank("loud") != -1 || wire.LevelRank("") != -1 {
		t.Error("a level that is none has a rank")
	}
	for method, want := range map[string]bool{
		wire.MethodCallTool: true, wire.MethodGetPrompt: true, wire.MethodReadResource: true, wire.MethodComplete: true,
		wire.MethodSubscribe: true, wire.MethodUnsubscribe: true, wire.MethodListTools: false, wire.MethodPing: false, "x": false,
	} {
		if wire.HasTarget(method) != want {
			t.Errorf("HasTarget(%s) = %v", method, !want)
		}
	}
	if got := fmt.Sprint(&wire.ErrTooLarge{Limit: 5}); got == "" {
		t.Error("ErrTooLarge says nothing")
	}
}
