// Command stateserver is an MCP server over stdio or HTTP that keeps what it is
// told in a directory, so that tests can fork it, kill it and ask it again. It
// knows nothing but what is in that directory when it starts.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"log"
	"os"
	"sync"
)

// maxMessage bounds one request.
const maxMessage = 64 << 20

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
	if *addr != "" {
		err = serveHTTP(*addr, s)
	} else {
		err = serve(s)
	}
	if err != nil {
		log.Fatal(err)
	}
}

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ProtocolVersion string    `json:"protocolVersion"`
		Name            string    `json:"name"`
		Arguments       arguments `json:"arguments"`
	} `json:"params"`
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
}

// serve answers each request on its own, so that a slow one keeps nobody waiting,
// until its input ends.
func serve(s *state) error {
	var out sync.Mutex
	var calls sync.WaitGroup
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 64<<10), maxMessage)
	for in.Scan() {
		var r request
		if json.Unmarshal(in.Bytes(), &r) != nil || r.ID == nil {
			continue
		}
		calls.Go(func() {
			line := s.respond(&r)
			out.Lock()
			defer out.Unlock()
			os.Stdout.Write(append(line, '\n'))
		})
	}
	calls.Wait()
	return in.Err()
}

type object = map[string]any

// respond is the whole response to a request.
func (s *state) respond(r *request) []byte {
	m := object{"jsonrpc": "2.0", "id": r.ID}
	if result := s.answer(r); result != nil {
		m["result"] = result
	} else {
		m["error"] = object{"code": -32601, "message": "method not found: " + r.Method}
	}
	line, err := json.Marshal(m)
	if err != nil {
		log.Fatal(err) // maps and strings
	}
	return line
}

func (s *state) answer(r *request) any {
	switch r.Method {
	case "initialize":
		return object{
			"protocolVersion": min(r.Params.ProtocolVersion, "2025-11-25"),
			"capabilities":    object{"tools": object{}},
			"serverInfo":      object{"name": "stateserver", "version": "1"},
		}
	case "ping":
		return object{}
	case "tools/list":
		var tools []object
		for _, name := range []string{"put", "del", "all", "pid", "ask"} {
			tools = append(tools, object{"name": name, "description": "Does " + name + ".", "inputSchema": object{"type": "object"}})
		}
		return object{"tools": tools}
	case "tools/call":
		text, err := s.call(r.Params.Name, r.Params.Arguments)
		if err != nil {
			return object{"isError": true, "content": []object{{"type": "text", "text": err.Error()}}}
		}
		return object{"content": []object{{"type": "text", "text": text}}}
	}
	return nil
}
