// Command badserver is an MCP server that misbehaves on demand, over stdio or
// HTTP, so that tests can show what one bad server does to the others. It speaks
// JSON-RPC by hand: an SDK would keep it from most of what it is for.
//
// Modes:
//
//	good      echo, remember, recall, sleep, count and mirror work
//	dead      ends at once and says why on standard error
//	hang      never answers anything
//	hangcall  answers lists and never a call
//	flap      ends, or drops the connection, at every second call
//	garbage   answers with what is no JSON-RPC
//	hugelist  answers tools/list with 100 MB
//	many      has 500 tools, 100 a page
//
// Every mode that works has the tool huge, which answers with 100 MB.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
)

func main() {
	mode := flag.String("mode", "good", "how to misbehave")
	addr := flag.String("http", "", "listen here instead of serving stdio")
	calls := flag.String("calls", "", "file to append the name of every called tool to")
	flag.Parse()
	log.SetFlags(0)
	log.SetPrefix("badserver: ")

	if *mode == "dead" {
		log.Fatal("the licence has expired")
	}
	s := &server{mode: *mode, memory: map[string]string{}}
	if *calls != "" {
		f, err := os.OpenFile(*calls, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			log.Fatal(err)
		}
		s.calls = f
	}
	log.Printf("serving as %s, process %d", *mode, os.Getpid())
	var err error
	if *addr != "" {
		err = serveHTTP(*addr, s)
	} else {
		err = serveStdio(s, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "badserver:", err)
		os.Exit(1)
	}
}
