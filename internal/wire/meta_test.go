package wire

import "testing"

func TestForLegacy(t *testing.T) {
	const info = `"io.modelcontextprotocol/serverInfo":{"name":"a","icons":[{"src":"data:"}]}`
	for raw, want := range map[string]string{
		`{"content":[]}`:                                                    `{"content":[]}`,
		`{"content":[],"_meta":{` + info + `}}`:                             `{"content":[]}`,
		`{"_meta": {` + info + `} , "n":1.50}`:                              `{"n":1.50}`,
		`{"_meta":{"a/b":1,` + info + `},"x":0}`:                            `{"_meta":{"a/b":1},"x":0}`,
		`{"_meta":{` + info + `,"a/b":1},"x":0}`:                            `{"_meta":{"a/b":1},"x":0}`,
		`{"_meta":{` + info + `}}`:                                          `{}`,
		`{"_meta":{"io.modelcontextprotocol\/logLevel":"info"}}`:            `{}`,
		`{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"1"}}}`: `{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"1"}}}`,
		`{"content":[{"text":"io.modelcontextprotocol/serverInfo"}]}`:       `{"content":[{"text":"io.modelcontextprotocol/serverInfo"}]}`,
		`{"_meta":null,"x":"io.modelcontextprotocol"}`:                      `{"_meta":null,"x":"io.modelcontextprotocol"}`,
		`{"content":[{"_meta":{` + info + `}}]}`:                            `{"content":[{"_meta":{` + info + `}}]}`,
		`io.modelcontextprotocol`:                                           `io.modelcontextprotocol`,
	} {
		if got := string(ForLegacy([]byte(raw))); got != want {
			t.Errorf("of %s there is left %s, want %s", raw, got, want)
		}
	}
}

func TestOwnMeta(t *testing.T) {
	for in, want := range map[string]string{
		``:               ``,
		`{}`:             ``,
		`{"_meta":null}`: ``,
		`{"_meta":{}}`:   ``,
		`{"_meta":[1]}`:  ``,
		`{"_meta":{"progressToken":1,"traceparent":"x","tracestate":"y","tine/call":"z","tine/caller":"z"}}`: ``,
		`{"_meta":{"io.modelcontextprotocol/protocolVersion":"x","io.modelcontextprotocol/clientInfo":{}}}`:  ``,
		`{"_meta":{"progressToken":1,"turn": 12345678901234567890,"a/b":{"c":[1, 2]}}}`:                      `{"turn":12345678901234567890,"a/b":{"c":[1, 2]}}`,
		`{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}`:                                  `{"io.modelcontextprotocol/related-task":{"taskId":"t"}}`,
		`{"_meta":{"tiny":1}}`: `{"tiny":1}`,
		`{"_meta":{"x":`:       ``,
	} {
		if got := string(OwnMeta([]byte(in))); got != want {
			t.Errorf("of %s there is %s, want %s", in, got, want)
		}
	}
}
