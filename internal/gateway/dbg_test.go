package gateway_test
import ("testing";"net/http";"fmt")
func TestDbg(t *testing.T) {
	up := script(t, false, map[string]string{"tools/list": plainTools})
	opened := make(chan func(string), 4)
	up.tap = func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("GET", r.Header)
		opened <- events(w)
		<-r.Context().Done()
		fmt.Println("GET over")
	}
	w := open(t, servers("t", up.URL))
	for range 2 {
		c := w.dial(t, "/mcp/t", bothCaps)
		c.listen()
		c.get("tools/list", `{}`)
	}
	send := take(t, opened)
	reply := up.reply(`"stray"`)
	send(`{"jsonrpc":"2.0","id":"stray","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}`)
	defer func() { for _, g := range up.got { fmt.Println(string(g.raw)) } }()
	take(t, reply)
}
