package config

import (
	"bytes"
	"strings"
	"testing"
)

var rlmEntry = MapNode(Pair{Key: "command", Value: StringNode("tine")}, Pair{Key: "args", Value: ListNode("rlm", "--project", "/a b")})

// TestJSONFile sets a member, which must give the text that is expected, and removes it
// again, which must leave the text as it was.
func TestJSONFile(t *testing.T) {
	const entry = "\"rlm\": {\n      \"command\": \"tine\",\n      \"args\": [\"rlm\", \"--project\", \"/a b\"]\n    }"
	for _, tt := range []struct {
		name, before, after string
		stays               string // what is left when it is removed again; empty for before
	}{
		{"nothing", "", "{\n  \"mcpServers\": {\n    " + entry + "\n  }\n}\n", "{\n  \"mcpServers\": {}\n}\n"},
		{"blank lines after a byte order mark", "\xef\xbb\xbf \n\n", "\xef\xbb\xbf{\n  \"mcpServers\": {\n    " + entry + "\n  }\n}\n", "\xef\xbb\xbf{\n  \"mcpServers\": {}\n}\n"},
		{"an empty object", "{}", `{"mcpServers": {"rlm": {"command": "tine", "args": ["rlm", "--project", "/a b"]}}}`, `{"mcpServers": {}}`},
		{"no key", "{\n  \"a\": 1\n}\n", "{\n  \"a\": 1,\n  \"mcpServers\": {\n    " + entry + "\n  }\n}\n", "{\n  \"a\": 1,\n  \"mcpServers\": {}\n}\n"},
		{"no server", "{\n  \"mcpServers\": {},\n  \"a\": 1\n}", "{\n  \"mcpServers\": {\n    " + entry + "\n  },\n  \"a\": 1\n}", ""},
		{"a comment in an empty object", "{\n  \"mcpServers\": { // none yet\n  }\n}", "{\n  \"mcpServers\": {\n    " + entry + " // none yet\n  }\n}", "{\n  \"mcpServers\": {\n     // none yet\n  }\n}"},
		{"a comment in an empty object on one line", `{"mcpServers": {/* none */}}`, `{"mcpServers": {"rlm": {"command": "tine", "args": ["rlm", "--project", "/a b"]}/* none */}}`, ""},
		{"four spaces", "{\n    \"mcpServers\": {}\n}", "{\n    \"mcpServers\": {\n        \"rlm\": {\n            \"command\": \"tine\",\n            \"args\": [\"rlm\", \"--project\", \"/a b\"]\n        }\n    }\n}", ""},
		{"tabs", "{\n\t\"x\": 1\n}", "{\n\t\"x\": 1,\n\t\"mcpServers\": {\n\t\t\"rlm\": {\n\t\t\t\"command\": \"tine\",\n\t\t\t\"args\": [\"rlm\", \"--project\", \"/a b\"]\n\t\t}\n\t}\n}", "{\n\t\"x\": 1,\n\t\"mcpServers\": {}\n}"},
		{"carriage returns", "{\r\n  \"mcpServers\": {\r\n    \"a\": {}\r\n  }\r\n}\r\n", "{\r\n  \"mcpServers\": {\r\n    \"a\": {},\r\n    " + strings.ReplaceAll(entry, "\n", "\r\n") + "\r\n  }\r\n}\r\n", ""},
		{"comments and trailing commas", "// top\n{\n  \"mcpServers\": {\n    // of a\n    \"a\": {\"args\": [\"x\",],}, // in the line\n    /* last */\n  },\n}\n// end",
			"// top\n{\n  \"mcpServers\": {\n    // of a\n    \"a\": {\"args\": [\"x\",],}, // in the line\n    " + entry + ",\n    /* last */\n  },\n}\n// end", ""},
		{"lists on several lines", "{\n  \"mcpServers\": {\n    \"a\": {\n      \"args\": [\n        \"x\"\n      ]\n    }\n  }\n}",
			"{\n  \"mcpServers\": {\n    \"a\": {\n      \"args\": [\n        \"x\"\n      ]\n    },\n    \"rlm\": {\n      \"command\": \"tine\",\n      \"args\": [\n        \"rlm\",\n        \"--project\",\n        \"/a b\"\n      ]\n    }\n  }\n}", ""},
		{"others that stand twice", "{\n  \"a\": 1,\n  \"mcpServers\": {\n    \"b\": 1,\n    \"b\": 2\n  },\n  \"a\": 2\n}", "{\n  \"a\": 1,\n  \"mcpServers\": {\n    \"b\": 1,\n    \"b\": 2,\n    " + entry + "\n  },\n  \"a\": 2\n}", ""},
		{"big numbers and escapes", `{"n": 12345678901234567890.10, "s": "\u00e4\/", "mcpServers": {"a": 1}}`,
			`{"n": 12345678901234567890.10, "s": "\u00e4\/", "mcpServers": {"a": 1, "rlm": {"command": "tine", "args": ["rlm", "--project", "/a b"]}}}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parse := func(text []byte) *JSONFile {
				f, err := ParseJSONFile("x.json", text, true)
				if err != nil {
					t.Fatal(err)
				}
				return f
			}
			text, err := parse([]byte(tt.before)).Set(rlmEntry, "mcpServers", "rlm")
			if err != nil {
				t.Fatal(err)
			}
			if string(text) != tt.after {
				t.Fatalf("set:\n%s\nwant:\n%s", text, tt.after)
			}
			if n, plain, err := parse(text).Get("mcpServers", "rlm"); err != nil || n == nil || !sameValue(n, rlmEntry) || !bytes.HasPrefix(plain, []byte("{")) {
				t.Errorf("read as %+v, %s, %v", n, plain, err)
			}
			back, err := parse(text).Remove("mcpServers", "rlm")
			if err != nil {
				t.Fatal(err)
			}
			want := tt.stays
			if want == "" {
				want = tt.before
			}
			if string(back) != want {
				t.Errorf("removed:\n%q\nwant:\n%q", back, want)
			}
		})
	}
}

func TestJSONFileReplaces(t *testing.T) {
	for before, want := range map[string]string{
		"{\n\t\"s\": {\n\t\t// of rlm\n\t\t\"rlm\": {\"url\": \"x\", /* gone */}, // stays\n\t\t\"b\": 1\n\t}\n}": "{\n\t\"s\": {\n\t\t// of rlm\n\t\t\"rlm\": {\n\t\t\t\"command\": \"tine\",\n\t\t\t\"args\": [\"rlm\", \"--project\", \"/a b\"]\n\t\t}, // stays\n\t\t\"b\": 1\n\t}\n}",
		`{"s":{"rlm":null}}`: `{"s":{"rlm":{"command": "tine", "args": ["rlm", "--project", "/a b"]}}}`,
	} {
		f, err := ParseJSONFile("x.json", []byte(before), true)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := f.Set(rlmEntry, "s", "rlm"); err != nil || string(text) != want {
			t.Errorf("%v\n%s\nwant\n%s", err, text, want)
		}
	}
}

func TestJSONFileRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		comments   bool
		say        string
	}{
		{"cut off", "{\n  \"mcpServers\": {\n", true, "x.json:3:1: the JSON ends too early"},
		{"two commas", "{\n  \"a\": 1,,\n  \"b\": 2}", true, "x.json:2:10: not valid JSON"},
		{"no quotes", "{\n  a: 1}", true, "x.json:2:3: not valid JSON"},
		{"more after it", "{}\n{}", true, "x.json:2:1: there is more"},
		{"a comment", "{\n  \"a\": 1 // x\n}", false, "x.json:2:10: a comment, which the program"},
		{"a trailing comma", "{\n  \"a\": [1,]\n}", false, "x.json:2:10: a trailing comma, which"},
		{"a comment alone", "// x\n", true, "x.json:2:1: the JSON ends too early"},
		{"a list", "[]", true, "x.json:1:1: the file has a list where an object belongs"},
		{"no text", "{\"a\": \"\xff\"}", true, "x.json:1:8: the file is not UTF-8"},
		{"UTF-16", "\xff\xfe{\x00}\x00", true, "not UTF-8"},
		{"too deep", strings.Repeat("[", 100), true, "x.json:1:66: nested deeper"},
		{"too large", strings.Repeat(" ", maxJSONBytes) + "{}", true, "x.json: the file is larger than 16 MiB"},
		{"servers that are a list", "{\n  \"mcpServers\": []\n}", true, `x.json:2:17: "mcpServers" is a list where an object belongs`},
		{"servers that are null", `{"mcpServers": null}`, true, `"mcpServers" is null`},
		{"servers twice", "{\"mcpServers\": {},\n\"mcpServers\": {}}", true, `x.json:2:1: "mcpServers" stands here and in line 1; remove one`},
		{"a server twice", "{\"mcpServers\": {\"rlm\": {},\n\n \"r\\u006cm\": {}}}", true, `x.json:3:2: "rlm" stands here and in line 1`},
		{"a comment over lines beside the last", "{\"mcpServers\": {\n  \"a\": 1 /* x\n  y */\n}}", true, "change \"rlm\" in \"mcpServers\" by hand"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := ParseJSONFile("x.json", []byte(tt.text), tt.comments)
			if err == nil {
				_, err = f.Set(rlmEntry, "mcpServers", "rlm")
			}
			if err == nil || !strings.Contains(err.Error(), tt.say) {
				t.Errorf("%v; want %q", err, tt.say)
			}
		})
	}
}

// FuzzJSONFile holds that a file that was changed keeps what it had, and means what it
// meant.
func FuzzJSONFile(f *testing.F) {
	for _, s := range []string{"", "{}", "{\"a\":{\"b\":[1,2,],}, // x\n}", "{\r\n\t\"s\": {\"rlm\": 1, \"rlm\": 2}}", "{\"s\": {\n  \"x\": 1 /* y */, }}", "\xef\xbb\xbf{\"s\":{\"rlm\":[{}]}}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := ParseJSONFile("x.json", data, true)
		if err != nil {
			t.Skip()
		}
		had, _, _ := file.Get("s", "rlm")
		text, err := file.Set(rlmEntry, "s", "rlm")
		if err != nil {
			t.Skip()
		}
		after, err := ParseJSONFile("x.json", text, true)
		if err != nil {
			t.Fatalf("%q became %q: %v", data, text, err)
		}
		if n, _, err := after.Get("s", "rlm"); err != nil || !sameValue(n, rlmEntry) {
			t.Fatalf("%q became %q: %v", data, text, err)
		}
		if had != nil {
			return
		}
		if !hasAll(text, data) {
			t.Fatalf("%q became %q, which lacks some of it", data, text)
		}
		if _, err := after.Remove("s", "rlm"); err != nil {
			t.Fatalf("%q became %q, which can't be undone: %v", data, text, err)
		}
	})
}

// hasAll reports whether the parts of a text are in another one, in their order. Space
// in an empty object may go.
func hasAll(text, parts []byte) bool {
	for _, c := range parts {
		if c == ' ' || c == '\t' || c == '\r' || c == '\n' {
			continue
		}
		i := bytes.IndexByte(text, c)
		if i < 0 {
			return false
		}
		text = text[i+1:]
	}
	return true
}
