// Command faultserver is an MCP server on stdio whose tools fail as their
// arguments say, so that tests can count what reaches a server that dies. It
// speaks JSON-RPC by hand: an SDK would keep it from most of what it is for.
//
// Its tools are plain, which says nothing of itself, destroys, adds, reads, which
// is read-only, and sets, which is idempotent. All take the same arguments:
//
//	do     die    end the process before the answer
//	       half   write half of the answer and end the process
//	       hang   never answer
//	       work   report progress for ms, and answer
//	times  how many calls with this key do that; 0 for all of them
//	key    tells calls apart
//	ms     for work
//
// Every call is appended to the file of -calls as "tool key pid" before anything
// else is done. An answer is the number of the process.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"time"
)

const tools = `{"tools":[
{"name":"plain","inputSchema":{"type":"object"}},
{"name":"destroys","inputSchema":{"type":"object"},"annotations":{"destructiveHint":true}},
{"name":"adds","inputSchema":{"type":"object"},"annotations":{"idempotentHint":false}},
{"name":"reads","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},
{"name":"sets","inputSchema":{"type":"object"},"annotations":{"idempotentHint":true}}]}`

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ProtocolVersion string `json:"protocolVersion"`
		Name            string `json:"name"`
		Arguments       struct {
			Do    string `json:"do"`
			Times int    `json:"times"`
			Key   string `json:"key"`
			MS    int    `json:"ms"`
		} `json:"arguments"`
		Meta struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	} `json:"params"`
}

// server writes answers one at a time.
type server struct {
	calls string
	mu    sync.Mutex
}

func main() {
	calls := flag.String("calls", "", "file that calls are appended to")
	slow := flag.Duration("slow", 0, "how long to take to start")
	flag.Parse()
	log.SetFlags(0)
	log.SetPrefix("faultserver: ")
	time.Sleep(*slow)
	s := &server{calls: *calls}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var r request
		if err := json.Unmarshal(line, &r); err != nil || r.ID == nil {
			continue
		}
		go s.handle(r)
	}
}

func (s *server) handle(r request) {
	switch r.Method {
	case "initialize":
		s.result(r, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"faultserver","version":"1"}}`)
	case "ping":
		s.result(r, `{}`)
	case "tools/list":
		s.result(r, strings.ReplaceAll(tools, "\n", ""))
	case "tools/call":
		s.call(r)
	default:
		s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, r.ID))
	}
}

func (s *server) call(r request) {
	args := r.Params.Arguments
	n := s.record(r.Params.Name, args.Key)
	answer := fmt.Sprintf(`{"content":[{"type":"text","text":"%d"}]}`, os.Getpid())
	if args.Times > 0 && n > args.Times {
		s.result(r, answer)
		return
	}
	switch args.Do {
	case "die":
		os.Exit(3)
	case "half":
		s.mu.Lock()
		fmt.Fprintf(os.Stdout, `{"jsonrpc":"2.0","id":%s,"resu`, r.ID)
		os.Exit(3)
	case "hang":
		select {}
	case "work":
		for began := time.Now(); time.Since(began) < time.Duration(args.MS)*time.Millisecond; {
			time.Sleep(100 * time.Millisecond)
			s.write(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`,
				r.Params.Meta.ProgressToken, time.Since(began).Milliseconds()))
		}
	}
	s.result(r, answer)
}

// record notes a call and returns how many of its kind there were by now, those
// of earlier processes too.
func (s *server) record(tool, key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := os.OpenFile(s.calls, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	fmt.Fprintln(f, tool, key, os.Getpid())
	all, err := os.ReadFile(s.calls)
	if err != nil {
		log.Fatal(err)
	}
	return strings.Count(string(all), tool+" "+key+" ")
}

func (s *server) result(r request, result string) {
	s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, result))
}

func (s *server) write(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(os.Stdout, line)
}
