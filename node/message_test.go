package node_test

import (
	"bytes"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/tine-mcp/tine/node"
)

// FuzzAnswerOf finds in every message what the SDK finds in it.
func FuzzAnswerOf(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`,
		` { "result" : [ 1 , {"a":"}]\\\"" } ] , "jsonrpc" : "2.0", "id" : "\"method\"" } `,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no","data":{"result":1}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"result":{}}}`,
		`{"jsonrpc":"2.0","id":1,"\u0072esult":{"a":1},"Result":{"b":2}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"a":1},"\u006dethod":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"result":1,"result":{"a":2}}`,
		`{"jsonrpc":"2.0","id":1,"result":"\\"}`,
		`{"jsonrpc":"2.0","id":1,"result":"\\\"","x":"result"}`,
		`{"jsonrpc":"2.0","id":1,"result":9007199254740993.10}`,
		`{"jsonrpc":"2.0","id":1,"result":{`, `{"result":"`, `{"a":}`, `{"a"`, `{,}`, `[{"result":1}]`, `"`, ``, `{"\`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		got, ok := node.AnswerOf(message)
		msg, err := jsonrpc.DecodeMessage(message)
		if err != nil {
			return // neither is used then
		}
		want, isAnswer := msg.(*jsonrpc.Response)
		if !isAnswer {
			if ok {
				t.Fatalf("answerOf(%s) = %s; the SDK has a %T", message, got, msg)
			}
			return
		}
		if want.Result == nil && want.Error == nil {
			return // the SDK takes it for an answer and says then what it lacks
		}
		if !ok || !bytes.Equal(got, want.Result) {
			t.Fatalf("answerOf(%s) = %s, %t; the SDK has %s", message, got, ok, want.Result)
		}
	})
}
