package node_test

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/node"
)

func TestDecode(t *testing.T) {
	type item struct {
		Name string `json:"name"`
	}
	type report struct {
		Result []int
	}
	const (
		none  = `{"content":[]}`
		image = `{"content":[{"type":"image","data":"AQ==","mimeType":"image/png"}]}`
	)
	wrapped := func(v string) string {
		return `{"content":[{"type":"text","text":"as text"}],"structuredContent":{"result":` + v + `}}`
	}
	for _, tt := range []struct {
		raw  string
		into any // a pointer to what there is before
		want any // what there is afterwards, or a part of the error
		bad  bool
	}{
		{wrapped(`9007199254740993`), new(int64), int64(9007199254740993), false},
		{wrapped(`[1,2]`), new([]int), []int{1, 2}, false},
		{wrapped(`"a"`), new(string), "a", false},
		{wrapped(`[1]`), new(string), "as text", false},
		{wrapped(`{"name":"a"}`), new(item), item{"a"}, false},
		{wrapped(`{"name":"a"}`), new(*item), &item{"a"}, false},
		{wrapped(`null`), new(*item), (*item)(nil), false},
		{wrapped(`null`), new([]int), []int(nil), false},
		{wrapped(`null`), new(string), "", false},
		{wrapped(`null`), new(int), "null can't be a int", true},
		{wrapped(`null`), new(item), "null can't be a node_test.item", true},
		{wrapped(`null`), new(any), map[string]any{"result": nil}, false},
		{wrapped(`9007199254740993`), new([]any), "structured content", true},
		{wrapped(`[9007199254740993]`), new([]any), []any{json.Number("9007199254740993")}, false},
		{wrapped(`"2026-01-02T03:04:05Z"`), new(time.Time), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), false},
		{wrapped(`[1]`), new(report), report{[]int{1}}, false},
		{wrapped(`1`), new(any), map[string]any{"result": json.Number("1")}, false},
		{wrapped(`1`), new(map[string]int), map[string]int{"result": 1}, false},
		{wrapped(`1`), new(json.RawMessage), json.RawMessage(`{"result":1}`), false},
		{wrapped(`1`), new(struct{}), struct{}{}, false},
		{wrapped(`1`), new(item), "structured content", true},
		{wrapped(`1,"more":2`), new(int), "structured content", true},
		{wrapped(`1,"more":2`), new(string), "as text", false},

		{`{"content":[],"structuredContent":{"a":1}}`, new(string), `{"a":1}`, false},
		{none, new(any), nil, false},
		{none, new(struct{}), struct{}{}, false},
		{none, &[]int{1}, []int(nil), false},
		{none, new(string), "", false},
		{none, new(int), "neither structured content nor text", true},
		{none, new(item), "neither structured content nor text", true},
		{image, new(any), "neither structured content nor text", true},
		{image, new(string), "no text", true},
		{`{"content":[{"type":"text","text":" null "}]}`, new(int), "null can't be a int", true},
		{`{"content":[{"type":"text","text":"null"}]}`, &[]int{1}, []int(nil), false},
		{`{"content":[{"type":"text","text":"null"}]}`, new(string), "null", false},
		{`{"content":[{"type":"text","text":""}]}`, new(string), "", false},
	} {
		err := (&node.Result{Raw: json.RawMessage(tt.raw)}).Decode(tt.into)
		got := reflect.ValueOf(tt.into).Elem().Interface()
		switch {
		case tt.bad && (err == nil || !strings.Contains(err.Error(), tt.want.(string))):
			t.Errorf("%s into %T: %v, %v; want an error with %q", tt.raw, tt.into, got, err, tt.want)
		case !tt.bad && (err != nil || !reflect.DeepEqual(got, tt.want)):
			t.Errorf("%s into %T: %v, %v; want %v", tt.raw, tt.into, got, err, tt.want)
		}
	}
}

// TestCallForResult has the SDK's result of a tool that failed.
func TestCallForResult(t *testing.T) {
	fail := node.Func("fail", "", func(context.Context, struct{}) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "no"}}}, nil
	})
	res, err := node.Call[struct{}, *mcp.CallToolResult](t.Context(), fail, struct{}{})
	if err != nil || !res.IsError || len(res.Content) != 1 {
		t.Errorf("%+v, %v", res, err)
	}
}
