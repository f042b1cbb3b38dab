// Command server is the MCP server that the driver suite runs. It speaks just
// enough of the protocol, and misbehaves on request.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"
)

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string    `json:"name"`
		Arguments arguments `json:"arguments"`
	} `json:"params"`
}

type arguments struct {
	Text  string `json:"text"`
	Bytes int    `json:"bytes"`
	Code  int    `json:"code"`
	How   string `json:"how"`
	Key   string `json:"key"`
	Value string `json:"value"`
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "sleep" {
		time.Sleep(time.Hour)
		return
	}
	if len(os.Args) > 2 && os.Args[1] == "beside" {
		beside(os.Args[2], os.Args[3:])
		return
	}
	if len(os.Args) > 2 && os.Args[1] == "http" {
		serve(os.Args[2])
	}
	if len(os.Args) > 2 && os.Args[1] == "die" {
		fmt.Fprintln(os.Stderr, os.Args[2])
		os.Exit(3)
	}
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	if len(os.Args) > 1 && os.Args[1] == "banner" {
		fmt.Fprintf(out, "Welcome to the server\n\n   \r\n%s\n", strings.Repeat("=", 100))
	}
	in := bufio.NewReaderSize(os.Stdin, 64<<10)
	broken := false // the last line was no message
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			if !broken { // some servers don't survive it, so that it only comes where it must
				fmt.Fprintln(os.Stderr, "an empty line came")
				os.Exit(9)
			}
			continue
		}
		broken = !json.Valid(line)
		answer(line, out)
		// Half a line may wait for its end until the answers before it were read.
		next, _ := in.Peek(in.Buffered())
		if bytes.IndexByte(next, '\n') < 0 || out.Buffered() > 32<<10 {
			out.Flush()
		}
	}
}

func answer(line []byte, out *bufio.Writer) {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"%d bytes are no message"}}`+"\n", len(line))
		return
	}
	if r.ID == nil {
		return
	}
	var result any
	switch r.Method {
	case "initialize":
		result = map[string]any{
			"protocolVersion": "2025-11-25",
			"capabilities":    map[string]any{"tools": map[string]any{}},
			"serverInfo":      map[string]any{"name": "drivertest", "version": "1"},
		}
	case "ping":
		result = map[string]any{}
	case "tools/call":
		text := call(r.Params.Name, r.Params.Arguments, out)
		result = map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}}
	default:
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", r.ID)
		return
	}
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": r.ID, "result": result})
	if err != nil {
		panic(err)
	}
	out.Write(b)
	out.WriteByte('\n')
}

func call(tool string, a arguments, out *bufio.Writer) string {
	switch tool {
	case "echo":
		return a.Text
	case "big":
		return strings.Repeat("x", a.Bytes)
	case "log":
		fmt.Fprintln(os.Stderr, a.Text)
	case "noise": // lines of standard error
		for n := 0; n < a.Bytes; {
			m, _ := fmt.Fprintf(os.Stderr, "noise %d %s\n", n, strings.Repeat("n", 80))
			n += m
		}
	case "exit":
		out.Flush()
		fmt.Fprintln(os.Stderr, a.Text)
		os.Exit(a.Code)
	case "say": // text as it is
		out.WriteString(a.Text)
	case "line": // one message of about that size
		out.WriteString(`{"jsonrpc":"2.0","method":"notifications/big","params":{"x":"`)
		io.CopyN(out, endless{}, int64(a.Bytes))
		out.WriteString(`"}}` + "\n")
	case "endless":
		out.WriteString(`{"x":"`)
		io.Copy(out, endless{})
	case "spill": // so many notifications that the client must read before we do
		for n := 0; n < a.Bytes; {
			m, _ := fmt.Fprintf(out, `{"jsonrpc":"2.0","method":"notifications/spill","params":{"n":%d,"pad":"%s"}}`+"\n", n, strings.Repeat("p", 2000))
			n += m
		}
	case "env":
		return strings.Join(os.Environ(), "\n")
	case "cwd":
		dir, _ := os.Getwd()
		return dir
	case "args":
		return strings.Join(os.Args[1:], "\n")
	case "pid":
		return fmt.Sprint(os.Getpid())
	case "stubborn":
		signal.Ignore(stopSignal)
	case "spawn":
		return spawn(a.How)
	case "running":
		return running(a.Text)
	case "remember":
		return remember(a.Key, a.Value)
	case "recall":
		return recall(a.Key)
	default:
		return "no such tool"
	}
	return "ok"
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'e'
	}
	return len(p), nil
}

// spawn starts a process that stays: in our group, in one of its own, or in its
// own session with nothing of ours open.
func spawn(how string) string {
	cmd := exec.Command(os.Args[0], "sleep")
	switch how {
	case "child":
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	case "cleared": // no environment, and our pipes
		cmd.Env = []string{}
		cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	}
	detach(cmd, how)
	if err := cmd.Start(); err != nil {
		return err.Error()
	}
	return fmt.Sprint(cmd.Process.Pid)
}
