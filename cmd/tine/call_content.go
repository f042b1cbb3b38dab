package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// content has the parts of an item of a result that are printed.
type content struct {
	Type     string    `json:"type"`
	Text     string    `json:"text"`
	Data     string    `json:"data"`
	MIME     string    `json:"mimeType"`
	URI      string    `json:"uri"`
	Name     string    `json:"name"`
	Resource *resource `json:"resource"`
}

type resource struct {
	URI  string  `json:"uri"`
	MIME string  `json:"mimeType"`
	Text *string `json:"text"`
	Blob *string `json:"blob"`
}

// printResult prints a tool's result for people, or its bytes with --json. A
// result that says it is an error goes to standard error and fails.
func (c *cli) printResult(raw json.RawMessage, out string) error {
	if c.flags.json {
		c.stdout.Write(append(bytes.TrimSpace(raw), '\n'))
	}
	var r callResult
	if err := json.Unmarshal(raw, &r); err != nil {
		return errors.New("the result is not one that a tool may give; --json shows it")
	}
	if out != "" && !r.IsError {
		if err := c.saveResult(r, out); err != nil {
			return err
		}
	}
	switch {
	case c.flags.json:
	case r.Type == "input_required":
		return errors.New("the tool asks for input before it goes on, which tine call can't give; call it from an MCP client")
	case r.IsError:
		c.printContent(c.stderr, c.errTerminal, r, false)
	case out != "" && !r.hasBinary():
		// The text went to the file.
	default:
		c.printContent(c.stdout, c.outTerminal, r, out != "")
	}
	if r.IsError {
		return exitStatus(exitFailed)
	}
	return nil
}

// printContent prints text as it is and describes the rest. Saved binary content
// was described then.
func (c *cli) printContent(w io.Writer, terminal bool, r callResult, saved bool) {
	text := false
	for _, raw := range r.Content {
		item := parseContent(raw)
		if body, ok := item.text(); ok {
			text = text || body != ""
			fmt.Fprint(w, visible(body, terminal))
			if body != "" && !strings.HasSuffix(body, "\n") {
				fmt.Fprintln(w)
			}
			continue
		}
		if _, binary := item.base64(); binary && saved {
			continue
		}
		fmt.Fprintln(w, visible(oneLine(item.describe(raw)), terminal))
	}
	if !text && len(r.Structured) > 0 {
		fmt.Fprintln(w, visible(indent(r.Structured, ""), terminal))
	}
}

func parseContent(raw json.RawMessage) content {
	var item content
	if err := json.Unmarshal(raw, &item); err != nil {
		return content{} // described by its size
	}
	return item
}

// text is what an item says in words.
func (i content) text() (string, bool) {
	switch {
	case i.Type == "text":
		return i.Text, true
	case i.Type == "resource" && i.Resource != nil && i.Resource.Text != nil:
		return *i.Resource.Text, true
	}
	return "", false
}

// base64 is the binary content of an item.
func (i content) base64() (string, bool) {
	switch {
	case i.Type == "image" || i.Type == "audio":
		return i.Data, true
	case i.Type == "resource" && i.Resource != nil && i.Resource.Blob != nil:
		return *i.Resource.Blob, true
	}
	return "", false
}

func (i content) describe(raw json.RawMessage) string {
	switch {
	case i.Type == "image" || i.Type == "audio":
		return fmt.Sprintf("[%s, %s; --out FILE saves it]", oneLine(i.Type+" "+i.MIME), decodedSize(i.Data))
	case i.Type == "resource" && i.Resource != nil && i.Resource.Blob != nil:
		return fmt.Sprintf("[resource %s, %s; --out FILE saves it]", oneLine(i.Resource.URI+" "+i.Resource.MIME), decodedSize(*i.Resource.Blob))
	case i.Type == "resource_link":
		return "[resource " + oneLine(i.URI+" "+i.Name+" "+i.MIME) + "]"
	case i.Type == "":
		return fmt.Sprintf("[content without a type, %d bytes of JSON; --json shows it]", len(raw))
	}
	return fmt.Sprintf("[%s, %d bytes of JSON; --json shows it]", i.Type, len(raw))
}

func decodedSize(data string) string {
	n := base64.RawStdEncoding.DecodedLen(len(strings.TrimRight(data, "=")))
	return fmt.Sprintf("%d bytes", n)
}

func (r callResult) hasBinary() bool {
	for _, raw := range r.Content {
		if _, ok := parseContent(raw).base64(); ok {
			return true
		}
	}
	return false
}

// saveResult writes the binary content of a result to a file, the second and
// further items to files with a number in their name; a result without any is
// saved as its text.
func (c *cli) saveResult(r callResult, out string) error {
	if !r.hasBinary() {
		var b bytes.Buffer
		c.printContent(&b, false, r, false)
		if b.Len() == 0 {
			return fmt.Errorf("the result has nothing to save to %s", out)
		}
		return c.save(out, "text", b.Bytes())
	}
	n := 0
	for _, raw := range r.Content {
		item := parseContent(raw)
		data, ok := item.base64()
		if !ok {
			continue
		}
		decoded, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return fmt.Errorf("decode the %s that the tool sent: %w", item.Type, err)
		}
		n++
		if err := c.save(numbered(out, n), strings.TrimSpace(item.Type+" "+item.MIME), decoded); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) save(path, what string, data []byte) error {
	if err := os.WriteFile(path, data, 0o666); err != nil {
		return fmt.Errorf("save the %s: %w", what, err)
	}
	c.say("saved %s: %s, %d bytes", path, what, len(data))
	return nil
}

// numbered is the name of the n-th file of a result.
func numbered(path string, n int) string {
	if n == 1 {
		return path
	}
	ext := filepath.Ext(path)
	return fmt.Sprintf("%s-%d%s", strings.TrimSuffix(path, ext), n, ext)
}
