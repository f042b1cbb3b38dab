package fetch

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

func TestMarkdown(t *testing.T) {
	s := newSite(t, map[string]http.HandlerFunc{"/page": page("text/html; charset=utf-8", article), "/bare": page("", article), "/wrong": page("application/octet-stream", article)})
	for _, era := range nativetest.Eras() {
		cs := open(t, era, nil)
		for _, path := range []string{"/page", "/bare", "/wrong"} {
			text, isError := fetched(t, cs, map[string]any{"url": s.URL + path})
			if isError {
				t.Fatal(text)
			}
			for _, want := range []string{"Contents of " + s.URL + path + ":\n", "## Second part", "[a link](https://example.com/x)", "**bold**", "*soft*", "`code`", "first item", "line one\nline two", "| one | two |", "Ünïcödé"} {
				if !strings.Contains(text, want) {
					t.Errorf("%s %s: no %q in %s", era, path, want, text)
				}
			}
			for _, not := range []string{"<p>", "hidden", "Nav one"} {
				if strings.Contains(text, not) {
					t.Errorf("%s %s: %q in %s", era, path, not, text)
				}
			}
		}
	}
}

func TestRawAndOtherTypes(t *testing.T) {
	s := newSite(t, map[string]http.HandlerFunc{"/page": page("text/html", article), "/data": page("application/json", `{"a":1}`), "/empty": page("text/html", ""), "/nothing": page("text/html", "<html><body></body></html>")})
	cs := open(t, nativetest.Modern, nil)
	text, _ := fetched(t, cs, map[string]any{"url": s.URL + "/page", "raw": true, "max_length": 100000})
	if want := "Content type text/html cannot be simplified to markdown, but here is the raw content:\nContents of " + s.URL + "/page:\n" + article; text != want {
		t.Errorf("raw: %q", text)
	}
	text, _ = fetched(t, cs, map[string]any{"url": s.URL + "/data"})
	if want := "Content type application/json cannot be simplified to markdown, but here is the raw content:\nContents of " + s.URL + "/data:\n{\"a\":1}"; text != want {
		t.Errorf("json: %q", text)
	}
	for _, path := range []string{"/empty", "/nothing"} {
		if text, isError := fetched(t, cs, map[string]any{"url": s.URL + path}); isError || !strings.HasSuffix(text, unreadable) {
			t.Errorf("%s: %v %q", path, isError, text)
		}
	}
}

func TestCharsets(t *testing.T) {
	latin1 := "<html><head>%s</head><body><p>" + strings.Repeat("caf\xe9, ", 80) + "</p></body></html>"
	s := newSite(t, map[string]http.HandlerFunc{
		"/header":  page("text/html; charset=iso-8859-1", fmt.Sprintf(latin1, "")),
		"/meta":    page("text/html", fmt.Sprintf(latin1, `<meta charset="windows-1252">`)),
		"/unsaid":  page("text/html", fmt.Sprintf(latin1, "")),
		"/utf16":   page("text/plain", "\xff\xfec\x00a\x00f\x00\xe9\x00"),
		"/invalid": page("text/plain; charset=utf-8", "caf\xe9 \xff"),
	})
	cs := open(t, nativetest.Modern, nil)
	for _, path := range []string{"/header", "/meta", "/unsaid", "/utf16"} {
		if text, isError := fetched(t, cs, map[string]any{"url": s.URL + path}); isError || !strings.Contains(text, "café") {
			t.Errorf("%s: %v %.200q", path, isError, text)
		}
	}
	if text, isError := fetched(t, cs, map[string]any{"url": s.URL + "/invalid"}); isError || !strings.HasSuffix(text, "caf� �") {
		t.Errorf("invalid: %v %q", isError, text)
	}
}

func FuzzMarkdown(f *testing.F) {
	f.Add(article)
	f.Add("<table><tr><td>a<td>b</table><ol start=99999999999><li>x")
	f.Add("<a href='http://[::1'>x</a><img srcset=','><pre><code>```\n")
	f.Add("<base href='::'><p><b><i><u>a</b>c</i><svg><math><template><p>")
	at, err := url.Parse("http://example.com/x")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			t.Skip()
		}
		if out := markdown(s, at); !utf8.ValidString(out) || out == "" {
			t.Fatalf("%q becomes %q", s, out)
		}
	})
}
