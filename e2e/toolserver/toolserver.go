// Package toolserver is what test servers that have nothing but tools share: they
// say by name what they have, and are called. It is written out, without an SDK,
// so that a server is small and does nothing that was not asked for.
package toolserver

import (
	"bufio"
	"encoding/json"
	"log"
	"os"
	"sync"
)

// maxMessage bounds one request.
const maxMessage = 64 << 20

// A Server answers MCP.
type Server[A any] struct {
	Name  string
	Tools []string
	// Call does what a tool does and returns its text. Several may run at once. The
	// gateway's name for the call is told to arguments that have SetCall.
	Call func(tool string, args A) (string, error)
	// Hear, where it is set, is told of each method before it is answered, and of
	// notifications.
	Hear func(method string)
	// Sessions makes it refuse over HTTP who has not said hello.
	Sessions bool
}

// Run serves at addr over streamable HTTP, for ever, or stdio until its input ends
// where addr is empty.
func (s *Server[A]) Run(addr string) error {
	if addr != "" {
		return s.serveHTTP(addr)
	}
	return s.serve()
}

type request[A any] struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ProtocolVersion string `json:"protocolVersion"`
		Name            string `json:"name"`
		Arguments       A      `json:"arguments"`
		Meta            struct {
			Call string `json:"tine/call"`
		} `json:"_meta"`
	} `json:"params"`
}

// serve answers each request on its own, so that a slow one delays no other.
func (s *Server[A]) serve() error {
	var out sync.Mutex
	var calls sync.WaitGroup
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 64<<10), maxMessage)
	for in.Scan() {
		var r request[A]
		if json.Unmarshal(in.Bytes(), &r) != nil {
			continue
		}
		if r.ID == nil {
			s.hear(r.Method)
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

func (s *Server[A]) hear(method string) {
	if s.Hear != nil {
		s.Hear(method)
	}
}

type object = map[string]any

// respond is the whole response to a request.
func (s *Server[A]) respond(r *request[A]) []byte {
	s.hear(r.Method)
	answer := object{"jsonrpc": "2.0", "id": r.ID}
	if result := s.answer(r); result != nil {
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

func (s *Server[A]) answer(r *request[A]) any {
	switch r.Method {
	case "initialize":
		return object{
			"protocolVersion": min(r.Params.ProtocolVersion, "2025-11-25"),
			"capabilities":    object{"tools": object{}},
			"serverInfo":      object{"name": s.Name, "version": "1"},
		}
	case "ping":
		return object{}
	case "tools/list":
		var tools []object
		for _, name := range s.Tools {
			tools = append(tools, object{"name": name, "description": "Does " + name + ".", "inputSchema": object{"type": "object"}})
		}
		return object{"tools": tools}
	case "tools/call":
		if a, ok := any(&r.Params.Arguments).(interface{ SetCall(string) }); ok {
			a.SetCall(r.Params.Meta.Call)
		}
		text, err := s.Call(r.Params.Name, r.Params.Arguments)
		if err != nil {
			return object{"isError": true, "content": []object{{"type": "text", "text": err.Error()}}}
		}
		return object{"content": []object{{"type": "text", "text": text}}}
	}
	return nil
}
