package everything

//lint:file-ignore SA1019 roots, sampling and logging are deprecated and still part of the protocol.

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

func TestGzip(t *testing.T) {
	big := strings.Repeat("x", maxFile+1)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/file":
			io.WriteString(w, "from the web")
		case "/big":
			io.WriteString(w, big)
		}
	}))
	defer web.Close()
	s := build(t, map[string]any{"allow_private": true})
	c := newCaller(mcp.ElicitResult{})
	cs := connect(t, s, nativetest.Legacy, c)
	zip := func(cs *mcp.ClientSession, args map[string]any) *mcp.CallToolResult {
		return nativetest.Call(t, cs, "gzip-file-as-resource", args)
	}
	for data, want := range map[string]string{
		"data:text/plain;base64,aGVsbG8=":      "hello",
		"data:text/plain;base64,aGVsbG8":       "hello",
		"data:;base64,aGVs%0abG8%3D":           "hello",
		"data:,a%20b+c":                        "a b+c",
		"DATA:text/plain;charset=utf-8,%C3%BC": "ü",
		"data:,":                               "",
		web.URL + "/file":                      "from the web",
	} {
		res := zip(cs, map[string]any{"name": "f.gz", "data": data})
		if res.IsError {
			t.Errorf("%s: %s", data, nativetest.Text(res))
			continue
		}
		link := res.Content[0].(*mcp.ResourceLink)
		read, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: link.URI})
		if err != nil {
			t.Fatal(err)
		}
		if got := unzip(t, read.Contents[0].Blob); got != want {
			t.Errorf("%s: %q, want %q", data, got, want)
		}
		res = zip(cs, map[string]any{"name": "f.gz", "data": data, "outputType": "resource"})
		if got := unzip(t, res.Content[0].(*mcp.EmbeddedResource).Resource.Blob); got != want {
			t.Errorf("%s embedded: %q, want %q", data, got, want)
		}
	}
	c.until(t, "the changed list", func() bool { return c.changed > 0 })
	for _, bad := range []string{"nope", "ftp://x/y", "file:///etc/passwd", "data:nocomma", "data:,%zz", "data:;base64,!!!!", "http://", web.URL + "/big"} {
		if res := zip(cs, map[string]any{"data": bad}); !res.IsError {
			t.Errorf("%.50s is accepted", bad)
		}
	}
	for _, prefix := range []string{",", ";base64,"} {
		if _, err := dataURL(prefix + strings.Repeat("AAAA", maxFile/3+1)); err == nil {
			t.Errorf("a data URL that is too large is accepted after %q", prefix)
		}
	}
	for _, bad := range []string{"", "%zz", "a\x7f"} {
		if res := zip(cs, map[string]any{"name": bad, "data": "data:,x"}); !res.IsError {
			t.Errorf("name %q is accepted", bad)
		}
	}
	// Only the newest are kept.
	for i := range maxZipped + 10 {
		zip(cs, map[string]any{"name": "n" + number(float64(i)), "data": "data:,x"})
	}
	list, err := cs.ListResources(t.Context(), nil)
	if err != nil || len(list.Resources) != 7+maxZipped {
		t.Errorf("%d resources, %v", len(list.Resources), err)
	}
	if _, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "demo://resource/session/n0"}); err == nil {
		t.Error("the oldest is still there")
	}

	guarded := nativetest.Connect(t, build(t, nil).Server, nativetest.Modern, nil)
	if res := zip(guarded, map[string]any{"data": web.URL + "/file"}); !res.IsError || !strings.Contains(nativetest.Text(res), "not a public address") {
		t.Errorf("loopback: %v %s", res.IsError, nativetest.Text(res))
	}
}

func TestZippedBytesAreBounded(t *testing.T) {
	s := build(t, nil)
	chunk := make([]byte, maxZippedBytes/4)
	for _, name := range []string{"a", "b", "c", "d", "e", "b", "f"} {
		if _, err := s.keep(name, chunk); err != nil {
			t.Fatal(err)
		}
	}
	if s.zipped.bytes > maxZippedBytes || len(s.zipped.made) != 4 {
		t.Errorf("%d bytes in %d resources", s.zipped.bytes, len(s.zipped.made))
	}
	if _, err := s.keep("huge", make([]byte, maxZippedBytes+1)); err != nil || len(s.zipped.made) != 1 {
		t.Errorf("%d resources, %v", len(s.zipped.made), err)
	}
}

func TestDocuments(t *testing.T) {
	cs := nativetest.Connect(t, build(t, nil).Server, nativetest.Modern, nil)
	list, err := cs.ListResources(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list.Resources {
		res, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: r.URI})
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile("docs/" + r.Name)
		if err != nil || res.Contents[0].Text != string(want) || res.Contents[0].MIMEType != "text/markdown" {
			t.Errorf("%s: %+v, %v", r.URI, res.Contents[0], err)
		}
	}
	if cs.InitializeResult().Instructions == "" {
		t.Error("no instructions")
	}
	for _, bad := range []string{"demo://resource/dynamic/text/x", "demo://resource/dynamic/text/0", "demo://resource/dynamic/text/-1", "demo://resource/dynamic/blob/1.5", "demo://resource/dynamic/blob/", "demo://nothing"} {
		if _, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: bad}); err == nil {
			t.Errorf("%s can be read", bad)
		}
	}
}
