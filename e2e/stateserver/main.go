// Command stateserver is an MCP server over stdio or HTTP that keeps what it is
// told in a directory, so that tests can fork it, kill it and ask it again. It
// knows nothing but what is in that directory when it starts.
package main

import (
	"flag"
	"log"

	"github.com/tine-mcp/tine/e2e/toolserver"
)

func main() {
	dir := flag.String("dir", "", "the directory that everything is kept in")
	addr := flag.String("http", "", "listen here instead of serving stdio")
	flag.Parse()
	log.SetFlags(0)
	log.SetPrefix("stateserver: ")
	s, err := openState(*dir)
	if err != nil {
		log.Fatal(err)
	}
	tools := toolserver.Server[arguments]{Name: "stateserver", Tools: []string{"put", "del", "all", "pid", "ask"}, Call: s.call}
	if err := tools.Run(*addr); err != nil {
		log.Fatal(err)
	}
}

type arguments struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	MS    int    `json:"ms"`
	// Of a request that the server makes itself.
	Method string `json:"method"`
	URL    string `json:"url"`
	Token  string `json:"token"`
	Body   string `json:"body"`
	Says   bool   `json:"says"` // of which call the request is a part
	call   string
}

func (a *arguments) SetCall(id string) { a.call = id }
