// Command proxy serves the tools of another MCP server over HTTP.
//
//	proxy ADDRESS URL
//	proxy ADDRESS COMMAND [ARGUMENT...]
package main

import (
	"context"
	"log"
	"os"
	"strings"

	"github.com/tine-mcp/tine/node"
)

func main() {
	dial := node.HTTP(os.Args[2])
	if !strings.Contains(os.Args[2], "://") {
		dial = node.Command(os.Args[2], os.Args[3:]...)
	}
	s, err := node.Connect(context.Background(), dial, nil)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(node.Serve(context.Background(), os.Args[1], s))
}
