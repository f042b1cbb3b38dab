// Command sandserver is an MCP server over stdio or HTTP that keeps all it knows
// in its memory and writes nothing down, so that tests can tell a copy of it from
// one that was started again. It counts its handshakes, has a timer that never
// stops, random numbers, and programs and threads that work for it.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"log"
	"os"
	"sync"
	"time"
)

// maxMessage bounds one request.
const maxMessage = 16 << 20

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
	if *addr != "" {
		err = serveHTTP(*addr, m)
	} else {
		err = serve(m)
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
}

// serve answers each request on its own, so that a slow one keeps nobody waiting,
// until its input ends.
func serve(m *memory) error {
	var out sync.Mutex
	var calls sync.WaitGroup
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 64<<10), maxMessage)
	for in.Scan() {
		var r request
		if json.Unmarshal(in.Bytes(), &r) != nil {
			continue
		}
		if r.ID == nil {
			m.hear(r.Method)
			continue
		}
		calls.Go(func() {
			line := m.respond(&r)
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
func (m *memory) respond(r *request) []byte {
	answer := object{"jsonrpc": "2.0", "id": r.ID}
	if result := m.answer(r); result != nil {
		answer["result"] = result
	} else {
		answer["error"] = object{"code": -32601, "message": "method not found: " + r.Method}
	}
	line, err := json.Marshal(answer)
	if err != nil {
		log.Fatal(err) // maps and strings
	}
	return line
}

func (m *memory) answer(r *request) any {
	switch r.Method {
	case "initialize":
		time.Sleep(m.slow)
		m.greeted()
		return object{
			"protocolVersion": min(r.Params.ProtocolVersion, "2025-11-25"),
			"capabilities":    object{"tools": object{}},
			"serverInfo":      object{"name": "sandserver", "version": "1"},
		}
	case "ping":
		return object{}
	case "tools/list":
		time.Sleep(m.slow)
		var tools []object
		for _, name := range []string{"put", "del", "all", "life", "draw", "reseed", "alarm", "work"} {
			tools = append(tools, object{"name": name, "description": "Does " + name + ".", "inputSchema": object{"type": "object"}})
		}
		return object{"tools": tools}
	case "tools/call":
		text, err := m.call(r.Params.Name, r.Params.Arguments)
		if err != nil {
			return object{"isError": true, "content": []object{{"type": "text", "text": err.Error()}}}
		}
		return object{"content": []object{{"type": "text", "text": text}}}
	}
	return nil
}
