package main

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// printJSON prints a value for programs. Raw JSON in it keeps its numbers and
// the order of its keys.
func (c *cli) printJSON(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	c.stdout.Write(b.Bytes()) // run reports a failed write
	return nil
}

// indent lays raw JSON out for people, its values untouched. What is no JSON
// comes back as it is.
func indent(raw []byte, prefix string) string {
	var b bytes.Buffer
	if err := json.Indent(&b, bytes.TrimSpace(raw), prefix, "  "); err != nil {
		return string(raw)
	}
	return b.String()
}
