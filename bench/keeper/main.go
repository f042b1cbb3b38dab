// Command keeper is the MCP server over stdio whose sandboxes are measured: static,
// of the standard library alone, and with as much in its memory as it is told to
// have. It has no timer, so that an idle one costs what its sandbox costs.
// keeper.py beside it is the same in Python, but does not grow.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
)

// maxMessage bounds one request, and maxMegabytes what it may be told to have.
const (
	maxMessage   = 1 << 20
	maxMegabytes = 4000
)

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ProtocolVersion string `json:"protocolVersion"`
		Name            string `json:"name"`
		Arguments       struct {
			Key       string `json:"key"`
			Value     string `json:"value"`
			Megabytes int    `json:"megabytes"`
		} `json:"arguments"`
	} `json:"params"`
}

// keeper is all that the server knows.
type keeper struct {
	values  map[string]string
	ballast [][]byte
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("keeper: ")
	k := &keeper{values: map[string]string{}}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, maxMessage)
	for in.Scan() {
		var q request
		if len(in.Bytes()) == 0 {
			continue // the end of a line that was torn
		}
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			log.Fatal(err)
		}
		if q.ID == nil {
			continue
		}
		answer, err := json.Marshal(k.respond(&q))
		if err == nil {
			_, err = os.Stdout.Write(append(answer, '\n'))
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := in.Err(); err != nil {
		log.Fatal(err)
	}
}

type object = map[string]any

func (k *keeper) respond(q *request) object {
	var result object
	switch q.Method {
	case "initialize":
		result = object{
			"protocolVersion": q.Params.ProtocolVersion, "capabilities": object{"tools": object{}},
			"serverInfo": object{"name": "keeper", "version": "1.0.0"},
		}
	case "ping":
		result = object{}
	case "tools/list":
		var tools []object
		for _, name := range []string{"put", "all", "grow"} {
			tools = append(tools, object{"name": name, "inputSchema": object{"type": "object"}})
		}
		result = object{"tools": tools}
	case "tools/call":
		text, err := k.call(q)
		if err != nil {
			text = err.Error()
		}
		result = object{"content": []object{{"type": "text", "text": text}}, "isError": err != nil}
	default:
		return object{"jsonrpc": "2.0", "id": q.ID, "error": object{"code": -32601, "message": "no such method: " + q.Method}}
	}
	return object{"jsonrpc": "2.0", "id": q.ID, "result": result}
}

func (k *keeper) call(q *request) (string, error) {
	a := q.Params.Arguments
	switch q.Params.Name {
	case "put":
		k.values[a.Key] = a.Value
		return a.Value, nil
	case "all":
		b, err := json.Marshal(k.values)
		return string(b), err
	case "grow":
		if a.Megabytes < 0 || a.Megabytes > maxMegabytes {
			return "", fmt.Errorf("%d is not from 0 to %d MB", a.Megabytes, maxMegabytes)
		}
		k.grow(a.Megabytes)
		return fmt.Sprintf("%d MB", len(k.ballast)), nil
	}
	return "", errors.New("no such tool: " + q.Params.Name)
}

// grow has so many megabytes in memory, none of which is like another.
func (k *keeper) grow(megabytes int) {
	noise := rand.NewChaCha8([32]byte{1})
	for len(k.ballast) < megabytes {
		b := make([]byte, 1e6)
		_, _ = noise.Read(b) // it never fails
		k.ballast = append(k.ballast, b)
	}
}
