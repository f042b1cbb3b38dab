// Command sandserver is an MCP server over stdio or HTTP that keeps all it knows
// in its memory and writes nothing down, so that tests can tell a copy of it from
// one that was started again. It counts its handshakes, has a timer that never
// stops, random numbers, and programs and threads that work for it.
package main

import (
	"flag"
	"log"

	"github.com/tine-mcp/tine/e2e/toolserver"
)

func main() {
	addr := flag.String("http", "", "listen here instead of serving stdio")
	crew := flag.Bool("crew", false, "have programs and threads that work for it")
	slow := flag.Duration("slow", 0, "take so long to say hello, and to list the tools")
	child := flag.Bool("child", false, "be one of those programs")
	flag.Parse()
	log.SetFlags(0)
	log.SetPrefix("sandserver: ")
	if *child {
		work()
		return
	}
	// Only who was started says so: a copy goes on in silence.
	log.Print("begins")
	m := newMemory()
	m.slow = *slow
	var err error
	if *crew {
		if m.crew, err = startCrew(); err != nil {
			log.Fatal(err)
		}
	}
	s := toolserver.Server[arguments]{
		Name: "sandserver", Tools: []string{"put", "del", "all", "life", "draw", "reseed", "alarm", "work", "read"},
		Call: m.call, Hear: m.hear, Sessions: true,
	}
	if err := s.Run(*addr); err != nil {
		log.Fatal(err)
	}
}

type arguments struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	MS    int    `json:"ms"`
}
